// Where in the page a link leads: #/jobs?..., #/jobs/NAMESPACE/NAME/TAB?..., #/history?..., #/history/jobs/NAMESPACE/NAME?uid=...,
// #/history/compare?job=..., #/history/sums?by=..., #/cluster?node=..., #/new?from=...
import { useEffect, useState } from 'preact/hooks'

export const tabs = ['overview', 'timeline', 'logs', 'manifest'] as const
export type Tab = (typeof tabs)[number]

export type Route =
  | { view: 'jobs'; query: URLSearchParams }
  | { view: 'job'; namespace: string; name: string; tab: Tab; query: URLSearchParams }
  | { view: 'history'; query: URLSearchParams }
  | { view: 'recorded'; namespace: string; name: string; query: URLSearchParams }
  | { view: 'comparison'; query: URLSearchParams }
  | { view: 'sums'; query: URLSearchParams }
  | { view: 'cluster'; query: URLSearchParams }
  | { view: 'create'; query: URLSearchParams }
  | { view: 'unknown'; path: string; query: URLSearchParams }

export function parse(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#/, '').split('?', 2)
  const query = new URLSearchParams(search)
  const [view, namespace, name, tab] = path.split('/').filter(Boolean).map(decode)
  if (view === 'cluster') return { view, query }
  if (view === 'new') return { view: 'create', query }
  if (view === 'history') {
    // Below it are views with names of their own.
    const [part, of, job] = [namespace, name, tab]
    if (part === 'jobs' && of && job) return { view: 'recorded', namespace: of, name: job, query }
    if (part === 'compare') return { view: 'comparison', query }
    return { view: part === 'sums' ? 'sums' : 'history', query }
  }
  if (view === 'jobs' && namespace && name) {
    return { view: 'job', namespace, name, tab: tabs.find((t) => t === tab) ?? 'overview', query }
  }
  return view && view !== 'jobs' ? { view: 'unknown', path, query } : { view: 'jobs', query }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

type Change = Record<string, string | string[]>

export function jobLink(namespace: string, name: string, tab: Tab = 'overview', query: Change = {}): string {
  const search = changed(new URLSearchParams(), query)
  const rest = tab === 'overview' ? '' : `/${tab}`
  return `#/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}${rest}${search && `?${search}`}`
}

/** jobsLink returns the link to the list of jobs with other filters. An empty value removes one. */
export function jobsLink(query: URLSearchParams, change: Change = {}): string {
  const search = changed(query, change)
  return `#/jobs${search && `?${search}`}`
}

/** nodeLink returns the link to a node of the cluster. */
export function nodeLink(name: string): string {
  return `#/cluster?node=${encodeURIComponent(name)}`
}

/** createLink returns the link to the form of a new job, which is like another one. */
export function createLink(from?: { namespace: string; name: string }): string {
  return from ? `#/new?from=${encodeURIComponent(`${from.namespace}/${from.name}`)}` : '#/new'
}

/** historyLink returns the link to the recorded jobs with other filters. Another filter begins with the newest job again. */
export function historyLink(query: URLSearchParams, change: Change = {}, part = ''): string {
  const next = new URLSearchParams(query)
  if (Object.keys(change).some((key) => key !== 'job')) next.delete('from')
  const search = changed(next, change)
  return `#/history${part && `/${part}`}${search && `?${search}`}`
}

export function recordedLink(job: { namespace: string; name: string; uid: string }): string {
  return `#/history/jobs/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}?uid=${encodeURIComponent(job.uid)}`
}

function changed(query: URLSearchParams, change: Change): string {
  const next = new URLSearchParams(query)
  for (const [key, value] of Object.entries(change)) {
    next.delete(key)
    for (const one of [value].flat()) if (one) next.append(key, one)
  }
  return next.toString()
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const changed = () => setHash(location.hash)
    addEventListener('hashchange', changed)
    return () => removeEventListener('hashchange', changed)
  }, [])
  return parse(hash)
}

/** replace changes the link of the page without a step in its history. */
export function replace(link: string): void {
  history.replaceState(null, '', link)
  dispatchEvent(new HashChangeEvent('hashchange'))
}
