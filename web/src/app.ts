// What all views need: the language, the session and the present.
import { createContext } from 'preact'
import { useContext, useEffect, useState } from 'preact/hooks'
import type { Session } from './api'
import { en, type Texts } from './texts.en'

export interface App {
  t: Texts
  session: Session | undefined
  theme: 'light' | 'dark'
}

export const AppContext = createContext<App>({ t: en, session: undefined, theme: 'light' })

export function useApp(): App {
  return useContext(AppContext)
}

/** useNow returns the present, and draws again every few seconds so that ages stay right. */
export function useNow(every = 5000): number {
  const [now, setNow] = useState(Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every)
    return () => clearInterval(timer)
  }, [every])
  return now
}

/** useMedia reports whether a media query matches now, such as a colour scheme or a width. */
export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches)
  useEffect(() => {
    const media = matchMedia(query)
    const changed = () => setMatches(media.matches)
    media.addEventListener('change', changed)
    return () => media.removeEventListener('change', changed)
  }, [query])
  return matches
}

/** useSetting keeps a choice of the user in the browser. */
export function useSetting(key: string): [string, (value: string) => void] {
  const [value, setValue] = useState(() => localStorage.getItem(key) ?? '')
  return [
    value,
    (next) => {
      localStorage.setItem(key, next)
      setValue(next)
    },
  ]
}
