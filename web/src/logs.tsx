// The logs of a job's replicas, bounded and drawn only where they are in view.
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { jobPath, refusal, type JobDetail } from './api'
import { useApp, useSetting } from './app'
import { Buffer, mostLines, type Line } from './buffer'
import { Choice } from './choice'
import { save } from './copy'
import { clock } from './format'
import { asText, Finder, lineAt, next, pieces, Tops } from './lines'
import { jobLink, recordedLink, replace } from './route'
import { useScroll } from './scroll'
import { delay } from './stream'
import { visible } from './window'

const lineHeight = 20

/** mostTail is how many of the last lines of a replica a request may ask for. */
const mostTail = 10_000

/** Logs shows the lines of some replicas; without names of all. */
export function Logs({ detail, query }: { detail: JobDetail; query: URLSearchParams }) {
  const { t, session } = useApp()
  const { job } = detail
  const replicas = query.getAll('replica')
  const [follow, setFollow] = useState(true)
  const [previous, setPrevious] = useState(query.get('previous') === 'true')
  const [search, setSearch] = useState(query.get('find')?.slice(0, 200) ?? '')
  const [only, setOnly] = useState(false)
  const [wrap, setWrap] = useSetting('wrap')
  const [times, setTimes] = useSetting('times')
  // The lines of all replicas fit on the page.
  const count = replicas.length || detail.parts.filter((p) => p.pod).length || 1
  const asked = new URLSearchParams({ ...(previous ? { previous: 'true' } : { follow: String(follow) }), tail: String(Math.min(mostTail, Math.floor(mostLines / count))) })
  for (const name of replicas) asked.append('replica', name)
  const { buffer, ended, error } = useLines(`${jobPath(job.namespace, job.name)}/logs?${asked}`)
  const finder = useRef(new Finder())
  const matches = finder.current.find(buffer.lines, search)
  const filtered = only && search !== ''
  const lines = filtered ? matches.lines : buffer.lines
  const places = matches.places
  const [at, setAt] = useState(-1)
  const [shown, setShown] = useState<{ line: number } | undefined>()
  const go = (place: number) => {
    setAt(place)
    const line = filtered ? place : places[place]
    if (line !== undefined && place >= 0) setShown({ line })
  }
  // What a link or a key asks for is shown once it is there.
  const wanted = useRef(search !== '')
  useEffect(() => {
    if (!wanted.current || places.length === 0) return
    wanted.current = false
    go(0)
  }, [places.length, search])
  const firstError = filtered ? matches.firstFoundError : matches.firstError
  const type = (text: string) => {
    setSearch(text)
    setAt(-1)
    wanted.current = text !== ''
  }
  return (
    <section class="card logs" aria-label={t.logs}>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Choice parts={detail.parts} chosen={replicas} choose={(names) => replace(jobLink(job.namespace, job.name, 'logs', { replica: names }))} />
        <span class="search" role="search">
          <input
            type="search"
            aria-label={t.searchLogs}
            placeholder={t.searchLogs}
            maxLength={200}
            value={search}
            onInput={(e) => type(e.currentTarget.value)}
            onKeyDown={(e) => e.key === 'Enter' && go(next(places.length, at, e.shiftKey ? -1 : 1))}
          />
          <button type="button" aria-label={t.previousMatch} title={t.previousMatch} disabled={places.length === 0 || !search} onClick={() => go(next(places.length, at, -1))}>
            ↑
          </button>
          <button type="button" aria-label={t.nextMatch} title={t.nextMatch} disabled={places.length === 0 || !search} onClick={() => go(next(places.length, at, 1))}>
            ↓
          </button>
          <span class="quiet found-count" role="status">
            {search && t.matches(at + 1, places.length)}
          </span>
        </span>
        <label class="field">
          <input type="checkbox" checked={only} onChange={(e) => setOnly(e.currentTarget.checked)} /> {t.onlyMatches}
        </label>
        <button type="button" disabled={firstError < 0} onClick={() => setShown({ line: firstError })}>
          {t.firstError}
        </button>
        <label class="field right">
          <input type="checkbox" checked={wrap === 'true'} onChange={(e) => setWrap(String(e.currentTarget.checked))} /> {t.wrap}
        </label>
        <label class="field">
          <input type="checkbox" checked={times !== 'false'} onChange={(e) => setTimes(String(e.currentTarget.checked))} /> {t.timeStamps}
        </label>
        <label class="field">
          <input type="checkbox" checked={previous} onChange={(e) => setPrevious(e.currentTarget.checked)} /> {t.previousAttempt}
        </label>
        <label class="field">
          <input type="checkbox" checked={follow && !previous} disabled={previous} onChange={(e) => setFollow(e.currentTarget.checked)} /> {t.follow}
        </label>
        <button type="button" disabled={lines.length === 0} onClick={() => save(new Blob([asText(lines)], { type: 'text/plain' }), `${job.name}.log`)}>
          {t.download}
        </button>
      </form>
      {error && (
        <p class="banner warning" role="alert">
          {error}
        </p>
      )}
      {previous && <p class="note">{t.previousText} {session?.history.reachable && <a href={recordedLink(job)}>{t.lastLines}</a>}</p>}
      {buffer.dropped > 0 && <p class="note">{t.dropped(buffer.dropped)}</p>}
      <Lines lines={lines} follow={follow} wrap={wrap === 'true'} times={times !== 'false'} search={search} shown={shown} />
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

interface LinesProps {
  lines: Line[]
  follow: boolean
  wrap: boolean
  times: boolean
  search: string
  /** The line that is shown; another value shows it again. */
  shown: { line: number } | undefined
}

function Lines({ lines, follow, wrap, times, search, shown }: LinesProps) {
  const { t } = useApp()
  const [box, view] = useScroll<HTMLDivElement>()
  const [stuck, setStuck] = useState(true)
  const before = useRef(0)
  const sign = useRef<HTMLSpanElement>(null)
  const names = useNames(lines)
  const longest = Math.max(0, ...[...names.keys()].map((name) => name.length))
  // 24 is the padding of both sides and the bar of the level.
  const columns = wrap ? Math.max(10, Math.floor(((box.current?.clientWidth ?? 800) - 24) / (sign.current?.getBoundingClientRect().width || 7.2)) - (times ? 10 : 0) - (longest ? longest + 2 : 0)) : 0
  const tops = useRef(new Tops())
  const begins = wrap ? tops.current.of(lines, columns) : undefined
  const rows = begins ? (begins[lines.length] ?? 0) : lines.length
  const window = visible(view.top, view.height, lineHeight, rows)
  const first = begins ? lineAt(begins, window.first) : window.first
  const end = begins ? Math.min(lines.length, lineAt(begins, window.end) + 1) : window.end
  useEffect(() => {
    if (follow && stuck && box.current) box.current.scrollTop = box.current.scrollHeight
  })
  useEffect(() => {
    if (!shown || !box.current) return
    setStuck(false)
    box.current.scrollTop = Math.max(0, (begins?.[shown.line] ?? shown.line) * lineHeight - box.current.clientHeight / 3)
  }, [shown])
  // More lines may come before the event of a scroll to the end: only a scroll upwards leaves it.
  const scrolled = ({ scrollTop, clientHeight, scrollHeight }: HTMLElement) => {
    if (scrollTop + clientHeight >= scrollHeight - 2 * lineHeight) setStuck(true)
    else if (scrollTop < before.current) setStuck(false)
    before.current = scrollTop
  }
  return (
    <div class="linesbox">
      <div
        class={wrap ? 'lines wrapped' : 'lines'}
        ref={box}
        role="log"
        aria-live="off"
        tabIndex={0}
        aria-label={t.logLines}
        style={{ '--name': `${longest}ch` }}
        onScroll={(e) => scrolled(e.currentTarget)}
      >
        <span class="sign" ref={sign} aria-hidden="true">
          {'0'}
        </span>
        <div class="all" style={{ height: `${rows * lineHeight}px` }}>
          <div class="shown" style={{ transform: `translateY(${(begins?.[first] ?? first) * lineHeight}px)` }}>
            {lines.slice(first, end).map((line, i) => (
              <Row key={first + i} line={line} times={times} place={names.get(line.replica) ?? 0} search={search} current={shown?.line === first + i} />
            ))}
          </div>
        </div>
      </div>
      {!stuck && lines.length > 0 && (
        <button type="button" class="toend" onClick={() => box.current?.scrollTo({ top: box.current.scrollHeight })}>
          {t.toEnd}
        </button>
      )}
    </div>
  )
}

function Row({ line, times, place, search, current }: { line: Line; times: boolean; place: number; search: string; current: boolean }) {
  const level = line.notice ? 'notice' : line.level
  return (
    <div class={`line ${level && `v-${level}`} ${current ? 'current' : ''}`} aria-current={current ? 'true' : undefined}>
      {times && <time dateTime={line.time}>{line.time ? clock(line.time) : ''}</time>}
      {line.replica && <span class={`from t-${place % 8}`}>{line.replica}</span>}
      <span class="text">{pieces(line.text, search).map((piece, i) => (i % 2 ? <mark>{piece}</mark> : piece))}</span>
    </div>
  )
}

/** useNames returns the replicas of lines in the order in which they came, each with its place. */
function useNames(lines: Line[]): Map<string, number> {
  const known = useRef({ names: new Map<string, number>(), seen: 0, of: lines })
  const { current } = known
  if (current.of !== lines || current.seen > lines.length) known.current = { names: current.names, seen: 0, of: lines }
  for (const line of lines.slice(known.current.seen)) if (line.replica && !current.names.has(line.replica)) current.names.set(line.replica, current.names.size)
  known.current.seen = lines.length
  return current.names
}
