// What is done with several jobs at once: each is asked about first.
import { useEffect, useRef, useState } from 'preact/hooks'
import { act, type JobRow } from './api'
import { useApp } from './app'
import { isFinished } from './state'
import { toast } from './toast'

type Verb = 'suspend' | 'resume' | 'delete'
const verbs: Verb[] = ['suspend', 'resume', 'delete']

/** together is how many requests run at once. */
const together = 4

/** each does something with all jobs, and returns why it failed by their places. */
async function each(jobs: JobRow[], run: (job: JobRow) => Promise<unknown>, report: (at: number, why: string) => void): Promise<void> {
  let next = 0
  const work = async () => {
    for (let at = next++; at < jobs.length; at = next++) {
      const job = jobs[at]
      if (job) await run(job).then(() => report(at, ''), (failed: Error) => report(at, failed.message))
    }
  }
  await Promise.all(Array.from({ length: together }, work))
}

interface Props {
  jobs: JobRow[]
  clear: () => void
}

/** Bulk offers what can be done with the chosen jobs. */
export function Bulk({ jobs, clear }: Props) {
  const { t } = useApp()
  const [verb, setVerb] = useState<Verb>()
  if (jobs.length === 0) return null
  return (
    <div class="bulk" role="group" aria-label={t.chosenJobs(jobs.length)}>
      <b aria-live="polite">{t.chosenJobs(jobs.length)}</b>
      {verbs.map((one) => (
        <button type="button" class={one === 'delete' ? 'danger' : ''} onClick={() => setVerb(one)}>
          {t.verb[one]}
        </button>
      ))}
      <button type="button" class="right" onClick={clear}>
        {t.clearChoice}
      </button>
      {verb && <BulkDialog jobs={jobs} verb={verb} done={clear} close={() => setVerb(undefined)} />}
    </div>
  )
}

/** mostShown bounds the jobs that a dialog names. */
const mostShown = 100

function BulkDialog({ jobs: given, verb, done, close }: { jobs: JobRow[]; verb: Verb; done: () => void; close: () => void }) {
  const { t } = useApp()
  const dialog = useRef<HTMLDialogElement>(null)
  // The jobs change while the dialog is open.
  const [jobs] = useState(given)
  const [refused, setRefused] = useState<Record<number, string>>({})
  const [asked, setAsked] = useState(0)
  const [isOver, setOver] = useState(false)
  const [busy, setBusy] = useState(true)
  const [typed, setTyped] = useState('')
  const possible = jobs.filter((_, i) => !refused[i])
  const running = verb === 'delete' ? jobs.filter((job) => !isFinished(job)).length : 0
  const report = (at: number, why: string) => {
    setAsked((count) => count + 1)
    setRefused((old) => (why ? { ...old, [at]: why } : old))
  }
  useEffect(() => {
    if (!dialog.current?.open) dialog.current?.showModal()
    void each(jobs, (job) => act(job, verb, { dryRun: true }), report).then(() => setBusy(false))
  }, [])
  const what = t.doIt(t.verb[verb], t.jobCount(possible.length))
  const why = running > 0 && typed !== String(running) ? t.typeNumberFirst : possible.length === 0 && !busy ? t.noneIsPossible : ''
  const submit = async () => {
    setBusy(true)
    const failed: Record<number, string> = {}
    await each(possible, (job) => act(job, verb, { dryRun: false }), (at, message) => message && (failed[jobs.indexOf(possible[at] as JobRow)] = message))
    const changed = possible.filter((job) => !failed[jobs.indexOf(job)])
    const undo = verb === 'suspend' ? () => each(changed, (job) => act(job, 'resume', { dryRun: false }), () => undefined) : undefined
    if (changed.length) toast(t.did(t.doIt(t.verb[verb], t.jobCount(changed.length))), undo)
    setBusy(false)
    if (Object.keys(failed).length === 0) {
      dialog.current?.close()
      done()
    } else {
      setRefused((old) => ({ ...old, ...failed }))
      setOver(true)
    }
  }
  return (
    <dialog ref={dialog} aria-label={t.doIt(t.verb[verb], t.jobCount(jobs.length))} onClose={close}>
      <form
        method="dialog"
        onSubmit={(e) => {
          e.preventDefault()
          if (!busy && !why && !isOver) void submit()
        }}
      >
        <h2>{t.doIt(t.verb[verb], t.jobCount(jobs.length))}</h2>
        <p role="status" class="quiet">
          {busy ? t.askedOf(Math.min(asked, jobs.length), jobs.length) : t.possibleOf(possible.length, jobs.length)}
        </p>
        <ul class="chosen" tabIndex={0} aria-label={t.jobs}>
          {jobs.slice(0, mostShown).map((job, i) => (
            <li class={refused[i] ? 'refused' : ''}>
              {job.namespace}/{job.name} {refused[i] && <span class="quiet">{refused[i]}</span>}
            </li>
          ))}
          {jobs.length > mostShown && <li class="quiet">{t.andMore(jobs.length - mostShown)}</li>}
        </ul>
        {running > 0 && (
          <label class="typed">
            {t.typeNumber(running)}
            <input value={typed} inputMode="numeric" autocomplete="off" maxLength={6} onInput={(e) => setTyped(e.currentTarget.value)} />
          </label>
        )}
        <div class="buttons">
          <span class="quiet why-not" id="why-bulk" role="status">
            {!busy && !isOver && why}
          </span>
          <button type="button" onClick={() => dialog.current?.close()}>
            {isOver ? t.close : t.cancel}
          </button>
          {!isOver && (
            <button class={verb === 'delete' ? 'danger main' : 'main'} disabled={busy || why !== ''} aria-describedby="why-bulk">
              {what}
            </button>
          )}
        </div>
      </form>
    </dialog>
  )
}
