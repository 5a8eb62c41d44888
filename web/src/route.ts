// Where in the page a link leads: #/jobs?..., #/jobs/NAMESPACE/NAME/TAB?..., #/cluster.
import { useEffect, useState } from 'preact/hooks'

export const tabs = ['overview', 'timeline', 'logs', 'manifest'] as const
export type Tab = (typeof tabs)[number]

export type Route =
  | { view: 'jobs'; query: URLSearchParams }
  | { view: 'job'; namespace: string; name: string; tab: Tab; query: URLSearchParams }
  | { view: 'cluster'; query: URLSearchParams }

export function parse(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#/, '').split('?', 2)
  const query = new URLSearchParams(search)
  const [view, namespace, name, tab] = path.split('/').filter(Boolean).map(decode)
  if (view === 'cluster') return { view, query }
  if (view === 'jobs' && namespace && name) {
    return { view: 'job', namespace, name, tab: tabs.find((t) => t === tab) ?? 'overview', query }
  }
  return { view: 'jobs', query }
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
