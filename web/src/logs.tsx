// The logs of a job's replicas, bounded and drawn only where they are in view.
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { jobPath, refusal, type JobDetail } from './api'
import { useApp } from './app'
import { Buffer, type Line } from './buffer'
import { Choice } from './choice'
import { jobLink, replace } from './route'
import { useScroll } from './scroll'
import { delay } from './stream'
import { visible } from './window'

const lineHeight = 20

/** Logs shows the lines of some replicas; without names of all. */
export function Logs({ detail, replicas }: { detail: JobDetail; replicas: string[] }) {
  const { t } = useApp()
  const { job } = detail
  const [follow, setFollow] = useState(true)
  const [search, setSearch] = useState('')
  const query = new URLSearchParams({ follow: String(follow), tail: '1000' })
  for (const name of replicas) query.append('replica', name)
  if (search) query.append('search', search)
  const { buffer, ended, error } = useLines(`${jobPath(job.namespace, job.name)}/logs?${query}`)
  return (
    <section class="card logs" aria-label={t.logs}>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Choice parts={detail.parts} chosen={replicas} choose={(names) => replace(jobLink(job.namespace, job.name, 'logs', { replica: names }))} />
        <input type="search" aria-label={t.searchLogs} placeholder={t.searchLogs} maxLength={200} onChange={(e) => setSearch(e.currentTarget.value)} />
        <label class="field">
          <input type="checkbox" checked={follow} onChange={(e) => setFollow(e.currentTarget.checked)} /> {t.follow}
        </label>
      </form>
      {error && (
        <p class="banner warning" role="alert">
          {error}
        </p>
      )}
      {buffer.dropped > 0 && <p class="note">{t.dropped(buffer.dropped)}</p>}
      <Lines lines={buffer.lines} follow={follow} />
      <p class="quiet" role="status">
        {ended && (buffer.lines.length === 0 ? t.noLines : t.logEnd)}
      </p>
    </section>
  )
}

interface Read {
  buffer: Buffer
  ended: boolean
  /** Why there are no lines, or no more; empty while they come. */
  error: string
}

/** useLines reads a stream of lines, and tries again after an error. They are shown at most once in a frame. */
function useLines(path: string): Read {
  const buffer = useRef(new Buffer())
  const [, draw] = useReducer((n: number) => n + 1, 0)
  const [ended, setEnded] = useState(false)
  const [error, setError] = useState('')
  useEffect(() => {
    let frame = 0
    let attempt = 0
    let timer: ReturnType<typeof setTimeout> | undefined
    let source: EventSource
    const abort = new AbortController()
    const show = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0
        draw(0)
      })
    }
    const add = (lines: Line[]) => {
      buffer.current.add(lines)
      show()
    }
    const open = () => {
      buffer.current = new Buffer()
      source = new EventSource(path)
      let opened = false
      source.onopen = () => (opened = true)
      source.addEventListener('lines', (message) => {
        attempt = 0
        setError('')
        add(JSON.parse(message.data) as Line[])
      })
      source.addEventListener('notice', (message) => {
        const notice = JSON.parse(message.data) as { replica?: string; text?: string; message?: string }
        add([{ replica: notice.replica ?? '', text: notice.text ?? notice.message ?? '', notice: true }])
      })
      source.addEventListener('end', () => {
        source.close()
        setError('')
        setEnded(true)
      })
      source.addEventListener('failed', (message) => setError((JSON.parse(message.data) as { message: string }).message))
      source.onerror = () => {
        source.close()
        if (!opened) void refusal(path, abort.signal).then(setError, () => undefined)
        timer = setTimeout(open, delay(attempt++))
      }
    }
    setEnded(false)
    setError('')
    open()
    show()
    return () => {
      source.close()
      abort.abort()
      clearTimeout(timer)
      cancelAnimationFrame(frame)
    }
  }, [path])
  return { buffer: buffer.current, ended, error }
}

function Lines({ lines, follow }: { lines: Line[]; follow: boolean }) {
  const { t } = useApp()
  const [box, view] = useScroll<HTMLDivElement>()
  const stuck = useRef(true)
  const { first, end } = visible(view.top, view.height, lineHeight, lines.length)
  useEffect(() => {
    if (follow && stuck.current && box.current) box.current.scrollTop = box.current.scrollHeight
  })
  const scrolled = (element: HTMLElement) => {
    stuck.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 2 * lineHeight
  }
  return (
    <div class="lines" ref={box} role="log" aria-live="off" tabIndex={0} aria-label={t.logLines} onScroll={(e) => scrolled(e.currentTarget)}>
      <div class="all" style={{ height: `${lines.length * lineHeight}px` }}>
        <div class="shown" style={{ transform: `translateY(${first * lineHeight}px)` }}>
          {lines.slice(first, end).map((line, i) => (
            <div class={line.notice ? 'line quiet' : 'line'} key={first + i}>
              {line.replica && <span class="from">{line.replica}</span>}
              {line.text}
            </div>
          ))}
        </div>
      </div>
    </div>
  )
}
