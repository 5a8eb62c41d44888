// Streams of Server-Sent Events that connect again, each time a little later.
import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Refused, get } from './api'

/** State says how current the data of a stream are. */
export type State =
  | { kind: 'connecting' }
  | { kind: 'live' }
  | { kind: 'lost'; message: string }
  | { kind: 'refused'; error: Refused }
  | { kind: 'gone' }

const first = 500
const longest = 15_000

/** delay returns how long to wait before an attempt, in milliseconds: doubled each time, up to 15 s. */
export function delay(attempt: number): number {
  return Math.min(longest, first * 2 ** Math.min(attempt, 10))
}

export interface Stream<T> {
  data: T | undefined
  state: State
  /** When the data came, in milliseconds since 1970. */
  at: number
  /** Tries now to connect again. */
  retry: () => void
}

/** stays reports whether an error is about the request itself, so that only a change of rights mends it. */
export function stays(status: number): boolean {
  return status === 400 || status === 401 || status === 403 || status === 404
}

/**
 * useStream returns the last data of the named event. If path changes, the data of
 * the path before are kept until the first of the new one.
 */
export function useStream<T>(path: string, event: string, plain: string): Stream<T> {
  const [stream, setStream] = useState<Omit<Stream<T>, 'retry'>>({ data: undefined, state: { kind: 'connecting' }, at: 0 })
  const [tries, setTries] = useState(0)
  const attempt = useRef(0)
  // At once, not after the next frame: the first view waits for the data.
  useLayoutEffect(() => {
    let source: EventSource | undefined
    let timer: ReturnType<typeof setTimeout> | undefined
    const abort = new AbortController()
    const become = (state: State) => setStream((old) => ({ ...old, state }))
    const again = (state: State) => {
      source?.close()
      become(state)
      clearTimeout(timer)
      timer = setTimeout(open, delay(attempt.current++))
    }
    // An EventSource does not tell why it failed: the plain request does.
    const ask = async () => {
      source?.close()
      try {
        await get(plain, abort.signal)
        if (!abort.signal.aborted) again({ kind: 'lost', message: '' })
      } catch (error) {
        if (abort.signal.aborted) return
        if (error instanceof Refused && stays(error.status)) again({ kind: 'refused', error })
        else again({ kind: 'lost', message: error instanceof Refused ? error.message : '' })
      }
    }
    function open() {
      source = new EventSource(path)
      source.addEventListener(event, (message) => {
        attempt.current = 0
        setStream({ data: JSON.parse(message.data) as T, state: { kind: 'live' }, at: Date.now() })
      })
      source.addEventListener('gone', () => {
        source?.close()
        become({ kind: 'gone' })
      })
      source.addEventListener('failed', (message) => {
        const { message: text } = JSON.parse(message.data) as { message: string }
        again({ kind: 'lost', message: text })
      })
      source.onerror = () => void ask()
    }
    open()
    return () => {
      abort.abort()
      clearTimeout(timer)
      source?.close()
    }
  }, [path, event, plain, tries])
  return { ...stream, retry: () => setTries(tries + 1) }
}
