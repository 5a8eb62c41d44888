// A job from its YAML, with what the API server finds in it while it is written.
import { useEffect, useRef, useState } from 'preact/hooks'
import { create, get, jobPath, Refused, type Created, type Finding, type Manifest } from './api'
import { useApp } from './app'
import { lineOf, renamed } from './fields'
import { Command } from './problem'
import { jobLink } from './route'
import { Section } from './section'
import { toast } from './toast'

/** How long nothing is typed before the API server is asked, in milliseconds. */
const pause = 500

/** longest is as the server bounds the YAML. */
const longest = 50_000

const sample = `apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: hello
spec:
  tasks:
  - type: learner
    replicas: 1
    template:
      spec:
        containers:
        - name: di-container
          image: busybox
          command: [sh, -c, echo hello]
          resources:
            requests: {cpu: 100m, memory: 64Mi}
`

/** useDraft keeps what was typed in the browser until the job is created, for each job that is cloned. */
function useDraft(from: string): [string | undefined, (text: string) => void, () => void] {
  const key = `draft ${from}`
  const [text, setText] = useState(localStorage.getItem(key) ?? undefined)
  const keep = (next: string) => {
    setText(next)
    if (next) localStorage.setItem(key, next)
    else localStorage.removeItem(key)
  }
  return [text, keep, () => localStorage.removeItem(key)]
}

interface Answer {
  /** The text that it is about. */
  of: string
  created?: Created
  error?: Refused
}

/** useDryRun asks the API server about a text once it has not changed for a while. */
function useDryRun(text: string): { answer: Answer | undefined; isAsking: boolean } {
  const [answer, setAnswer] = useState<Answer>()
  const isAsking = text.trim() !== '' && answer?.of !== text
  useEffect(() => {
    if (!isAsking) return
    const abort = new AbortController()
    const settle = (next: Omit<Answer, 'of'>) => abort.signal.aborted || setAnswer({ of: text, ...next })
    const timer = setTimeout(() => {
      create(text, true, abort.signal).then(
        (created) => settle({ created }),
        (failed: Error) => settle({ error: failed instanceof Refused ? failed : new Refused(0, '', failed.message) }),
      )
    }, pause)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
  }, [text, isAsking])
  return { answer: text.trim() ? answer : undefined, isAsking }
}

export function CreateView({ query }: { query: URLSearchParams }) {
  const { t } = useApp()
  const from = query.get('from') ?? ''
  const [draft, keep, forget] = useDraft(from)
  const [failed, setFailed] = useState('')
  const text = draft ?? ''
  const { answer, isAsking } = useDryRun(text)
  const [busy, setBusy] = useState(false)
  const box = useRef<HTMLTextAreaElement>(null)
  useEffect(() => {
    const [namespace, name] = from.split('/')
    if (draft !== undefined || !namespace || !name) return
    const abort = new AbortController()
    get<Manifest>(`${jobPath(namespace, name)}/manifest?clean=true`, abort.signal).then(
      ({ yaml }) => keep(renamed(yaml, `${name}-copy`)),
      (error: Error) => abort.signal.aborted || setFailed(error.message),
    )
    return () => abort.abort()
  }, [from])
  const ready = answer?.of === text ? answer.created : undefined
  const why = ready ? '' : !text.trim() ? t.pasteFirst : isAsking ? t.asking : answer?.error?.right ? t.rightFirst : t.mendFirst
  const submit = () => {
    if (!ready || busy) return
    setBusy(true)
    create(text, false)
      .then(({ namespace, name }) => {
        forget()
        toast(t.did(t.createJob(name)))
        location.hash = jobLink(namespace, name)
      })
      .catch((error: Error) => setFailed(error.message))
      .finally(() => setBusy(false))
  }
  return (
    <div class="page">
      <p class="crumbs">
        <a href="#/jobs">{t.back}</a>
      </p>
      <h1>{from ? t.cloneOf(from) : t.create}</h1>
      {failed && (
        <p class="banner warning lined" role="alert">
          {failed}
        </p>
      )}
      <form
        class="create"
        onSubmit={(e) => {
          e.preventDefault()
          submit()
        }}
      >
        <section class="card">
          <label for="yaml">{t.pasteYAML}</label>
          <textarea
            id="yaml"
            ref={box}
            value={text}
            maxLength={longest}
            spellcheck={false}
            autocomplete="off"
            autocapitalize="off"
            wrap="off"
            onInput={(e) => {
              keep(e.currentTarget.value)
              setFailed('')
            }}
          />
          <div class="buttons">
            <span class="quiet why-not">
              <span id="why-create" role="status">
                {why}
              </span>{' '}
              {text && t.draftKept}
            </span>
            {text === '' && (
              <button type="button" onClick={() => keep(sample)}>
                {t.fillSample}
              </button>
            )}
            {text !== '' && (
              <button type="button" onClick={() => keep('')}>
                {t.empty}
              </button>
            )}
            <button class="main" disabled={!ready || busy} aria-describedby="why-create">
              {t.createJob(ready?.name ?? t.job)}
            </button>
          </div>
        </section>
        <Section title={t.serverSays}>
          <div aria-live="polite" class={isAsking ? 'quiet' : ''}>
            {!answer && <p class="quiet">{t.willTry}</p>}
            {answer?.created && <WouldBe created={answer.created} />}
            {answer?.error && <Findings error={answer.error} text={text} box={box.current} />}
          </div>
        </Section>
      </form>
    </div>
  )
}

function WouldBe({ created }: { created: Created }) {
  const { t } = useApp()
  return (
    <>
      <p class="fine">
        <b>{t.isFine}</b>
      </p>
      <ul>
        {created.effects.map((effect) => (
          <li>{t.say(effect)}</li>
        ))}
      </ul>
      <details>
        <summary>{t.withDefaults}</summary>
        <pre tabIndex={0}>{created.yaml}</pre>
      </details>
    </>
  )
}

/** Findings lists what is refused. A click on a field leads to it in the text. */
function Findings({ error, text, box }: { error: Refused; text: string; box: HTMLTextAreaElement | null }) {
  const { t } = useApp()
  const all: Finding[] = error.findings.length ? error.findings : [{ text: error.message }]
  const show = (line: number) => {
    const begin = text.split('\n').slice(0, line).join('\n').length + (line > 0 ? 1 : 0)
    const end = text.indexOf('\n', begin)
    box?.focus()
    box?.setSelectionRange(begin, end < 0 ? text.length : end)
    if (box) box.scrollTop = Math.max(0, line - 5) * 20
  }
  return (
    <>
      <p class="wrong">
        <b>{error.right ? t.noRight(error.right) : t.isRefused}</b>
      </p>
      <ul class="findings">
        {all.map((one) => {
          const line = one.field ? lineOf(text, one.field) : -1
          return (
            <li>
              {one.field && (
                <p>
                  <code>{one.field}</code>{' '}
                  {line >= 0 && (
                    <button type="button" class="small" onClick={() => show(line)}>
                      {t.lineNumber(line + 1)}
                    </button>
                  )}
                </p>
              )}
              <p class="lined">{one.text}</p>
            </li>
          )
        })}
      </ul>
      {error.grant.length > 0 && <Command text={error.grant.join('\n')} />}
    </>
  )
}
