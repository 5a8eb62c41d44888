// Answers of the server that are asked for once, or again after a while.
import { useEffect, useState } from 'preact/hooks'
import { get } from './api'

export interface Answer<T> {
  data: T | undefined
  /** Why there is no answer; empty without an error. */
  error: string
}

/** useAnswer asks for a path. No path asks for nothing. The data of another path are dropped. */
export function useAnswer<T>(path: string | undefined, every = 0): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { path: string | undefined }>({ data: undefined, error: '', path })
  useEffect(() => {
    if (!path) return
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const ask = () =>
      get<T>(path, abort.signal).then(
        (data) => settle({ data, error: '', path }),
        (failed: Error) => settle((old) => ({ data: old.path === path ? old.data : undefined, error: failed.message, path })),
      )
    const settle = (next: Parameters<typeof setAnswer>[0]) => {
      if (abort.signal.aborted) return
      setAnswer(next)
      if (every) timer = setTimeout(() => void ask(), every)
    }
    void ask()
    return () => {
      abort.abort()
      clearTimeout(timer)
    }
  }, [path, every])
  return answer.path === path ? answer : { data: undefined, error: '' }
}
