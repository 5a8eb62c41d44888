// Filters of the list that its user has named. They stay in the browser.
import { useState } from 'preact/hooks'
import { useApp } from './app'
import { jobsLink } from './route'

const key = 'filters'
const most = 20
const longestName = 40

export interface Saved {
  name: string
  query: string
}

/** savedFilters returns the named filters. What is no such list is none. */
export function savedFilters(): Saved[] {
  try {
    const all: unknown = JSON.parse(localStorage.getItem(key) ?? '[]')
    if (!Array.isArray(all)) return []
    return all.filter((one): one is Saved => typeof one?.name === 'string' && typeof one?.query === 'string').slice(0, most)
  } catch {
    return []
  }
}

/** SavedFilters shows the named filters, and names the present one. */
export function SavedFilters({ query }: { query: URLSearchParams }) {
  const { t } = useApp()
  const [all, setAll] = useState(savedFilters)
  const [name, setName] = useState<string>()
  const now = query.toString()
  const known = all.find((one) => one.query === now)
  const store = (next: Saved[]) => {
    localStorage.setItem(key, JSON.stringify(next))
    setAll(next)
  }
  const save = () => {
    const given = name?.trim().slice(0, longestName)
    if (given) store([...all.filter((one) => one.name !== given), { name: given, query: now }].slice(-most))
    setName(undefined)
  }
  return (
    <span class="saved" role="group" aria-label={t.savedFilters}>
      {all.map((one) => (
        <span class={`chip ${one === known ? 'is-on' : ''}`}>
          <a href={jobsLink(new URLSearchParams(one.query))} aria-current={one === known ? 'true' : undefined}>
            {one.name}
          </a>
          <button type="button" aria-label={t.forgetFilter(one.name)} onClick={() => store(all.filter((other) => other !== one))}>
            ×
          </button>
        </span>
      ))}
      {name === undefined && now && !known && (
        <button type="button" class="small" onClick={() => setName('')}>
          {t.saveFilter}
        </button>
      )}
      {name !== undefined && (
        <input
          aria-label={t.filterName}
          placeholder={t.filterName}
          maxLength={longestName}
          value={name}
          ref={(field) => field?.focus()}
          onInput={(e) => setName(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === 'Enter') save()
            else if (e.key === 'Escape') setName(undefined)
            else return
            e.preventDefault()
          }}
          onBlur={() => setName(undefined)}
        />
      )}
    </span>
  )
}
