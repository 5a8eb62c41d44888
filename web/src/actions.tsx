// What the user can do with a job. A dialog first shows what would happen.
import { useEffect, useRef, useState } from 'preact/hooks'
import { act, type Action, type ActionRequest, type ActionResult, type JobDetail, type JobRow } from './api'
import { useApp } from './app'
import { Command } from './problem'
import { createLink, jobsLink } from './route'
import { isFinished } from './state'
import type { Texts } from './texts.en'
import { toast } from './toast'

/** Actions offers what can be done with a job in its state, and says below why something is not possible now. */
export function Actions({ detail }: { detail: JobDetail }) {
  const { t } = useApp()
  const [open, setOpen] = useState<Action>()
  const refused = byReason(detail.actions)
  return (
    <div class="actions" role="group" aria-label={t.actions}>
      {detail.actions.map((action) => (
        <button
          type="button"
          class={action.name === 'delete' ? 'danger' : ''}
          aria-disabled={!action.allowed}
          aria-describedby={action.allowed ? undefined : `why-${refused.findIndex((same) => same.includes(action))}`}
          onClick={() => action.allowed && setOpen(action)}
        >
          {t.action[action.name]}
        </button>
      ))}
      <a class="button" href={createLink(detail.job)}>
        {t.clone}
      </a>
      {refused.map((same, at) => (
        <Refused actions={same} id={`why-${at}`} />
      ))}
      {open && <ActionDialog detail={detail} action={open} close={() => setOpen(undefined)} />}
    </div>
  )
}

/** byReason returns the actions that are not possible, those with one reason together. */
function byReason(actions: Action[]): Action[][] {
  const groups = new Map<string, Action[]>()
  for (const action of actions) {
    const reason = action.reason ?? ''
    if (!action.allowed) groups.set(reason, [...(groups.get(reason) ?? []), action])
  }
  return [...groups.values()]
}

/** Refused says why actions are not possible, and how their right is given. */
function Refused({ actions, id }: { actions: Action[]; id: string }) {
  const { t } = useApp()
  const names = actions.map((action) => t.action[action.name])
  const grants = new Set(actions.flatMap((action) => action.grant ?? []))
  return (
    <div class="refused">
      <span id={id}>{t.notAllowed(names, t.say(actions[0]?.reason ?? ''))}</span>
      {grants.size > 0 && (
        <details>
          <summary>{t.grantBy}</summary>
          <Command text={[...grants].join('\n')} />
        </details>
      )}
    </div>
  )
}

interface DialogProps {
  detail: JobDetail
  action: Action
  close: () => void
}

function ActionDialog({ detail, action, close }: DialogProps) {
  const { t } = useApp()
  const dialog = useRef<HTMLDialogElement>(null)
  const pods = detail.parts.filter((p) => p.restartable)
  const [request, setRequest] = useState<ActionRequest>(() => first(action, pods[0]?.name))
  const [result, setResult] = useState<ActionResult>()
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(true)
  const [typed, setTyped] = useState('')
  const { job } = detail
  const run = (dryRun: boolean, current: () => boolean, then: (done: ActionResult) => void) => {
    setBusy(true)
    act(job, action.name, { ...request, dryRun })
      .then((done) => current() && (setError(''), then(done)))
      .catch((failed: Error) => current() && (setError(failed.message), setResult(undefined)))
      .finally(() => current() && setBusy(false))
  }
  useEffect(() => {
    if (!dialog.current?.open) dialog.current?.showModal()
  }, [])
  useEffect(() => {
    let current = true
    const timer = setTimeout(() => run(true, () => current, setResult), 200)
    setBusy(true)
    return () => {
      current = false
      clearTimeout(timer)
    }
  }, [JSON.stringify(request)])
  const what = whatOf(t, action, request, job.name)
  const done = () => {
    toast(t.did(what), undoOf(job, action, request))
    dialog.current?.close()
    if (action.name === 'delete') location.hash = jobsLink(new URLSearchParams())
  }
  // What runs is not deleted by a slip.
  const named = action.name === 'delete' && !isFinished(job)
  const why = named && typed !== job.name ? t.typeNameFirst : isSame(action, request) ? t.sameSize(request.replicas ?? 0) : ''
  return (
    <dialog ref={dialog} aria-label={t.action[action.name]} onClose={close}>
      <form
        method="dialog"
        onSubmit={(e) => {
          e.preventDefault()
          if (!busy && result && !why) run(false, () => true, done)
        }}
      >
        <h2>
          {t.action[action.name]} <span class="quiet">{job.name}</span>
        </h2>
        <Fields action={action} pods={pods.map((p) => p.name)} request={request} change={setRequest} />
        <h3>{t.willHappen}</h3>
        <div aria-live="polite" class="effects">
          {busy && !result && <p class="quiet">{t.asking}</p>}
          {error && <p class="banner warning">{error}</p>}
          {result && (
            <ul class={busy ? 'quiet' : ''}>
              {result.effects.map((effect) => (
                <li>{t.say(effect)}</li>
              ))}
            </ul>
          )}
        </div>
        {named && (
          <label class="typed">
            {t.typeName(job.name)}
            <input value={typed} autocomplete="off" spellcheck={false} maxLength={253} onInput={(e) => setTyped(e.currentTarget.value)} />
          </label>
        )}
        <div class="buttons">
          <span class="quiet why-not" id="why-confirm" role="status">
            {why}
          </span>
          <button type="button" onClick={() => dialog.current?.close()}>
            {t.cancel}
          </button>
          <button class={action.name === 'delete' ? 'danger main' : 'main'} disabled={busy || !result || why !== ''} aria-describedby="why-confirm">
            {what}
          </button>
        </div>
      </form>
    </dialog>
  )
}

/** whatOf names what a request does, such as "Resize to 3". */
function whatOf(t: Texts, action: Action, request: ActionRequest, job: string): string {
  if (action.name === 'resize') return t.resizeTo(request.replicas ?? 0)
  return t.doIt(t.verb[action.name], action.name === 'restart' ? (request.replica ?? '') : job)
}

/** undoOf returns what takes an action back: a job is resumed, or has the size from before. */
function undoOf(job: JobRow, action: Action, request: ActionRequest): (() => Promise<unknown>) | undefined {
  if (action.name === 'suspend') return () => act(job, 'resume', { dryRun: false })
  const before = action.tasks?.find((one) => one.task === request.task)
  if (action.name === 'resize' && before) return () => act(job, 'resize', { dryRun: false, task: before.task, replicas: before.replicas })
  return undefined
}

/** isSame reports whether a task has the desired replicas already. */
function isSame(action: Action, request: ActionRequest): boolean {
  return action.name === 'resize' && action.tasks?.find((one) => one.task === request.task)?.replicas === request.replicas
}

function first(action: Action, replica: string | undefined): ActionRequest {
  const task = action.tasks?.[0]
  if (action.name === 'resize' && task) return { dryRun: true, task: task.task, replicas: task.replicas }
  if (action.name === 'restart' && replica) return { dryRun: true, replica }
  return { dryRun: true }
}

interface FieldsProps {
  action: Action
  pods: string[]
  request: ActionRequest
  change: (request: ActionRequest) => void
}

function Fields({ action, pods, request, change }: FieldsProps) {
  const { t } = useApp()
  if (action.name === 'restart') {
    return (
      <label class="field">
        {t.replica}
        <select value={request.replica} onChange={(e) => change({ ...request, replica: e.currentTarget.value })}>
          {pods.map((name) => (
            <option value={name}>{name}</option>
          ))}
        </select>
      </label>
    )
  }
  if (action.name !== 'resize') return null
  const tasks = action.tasks ?? []
  const task = tasks.find((one) => one.task === request.task)
  return (
    <div class="filters">
      <label class="field">
        {t.task}
        <select
          value={request.task}
          onChange={(e) => {
            const next = tasks.find((one) => one.task === e.currentTarget.value)
            if (next) change({ dryRun: true, task: next.task, replicas: next.replicas })
          }}
        >
          {tasks.map((one) => (
            <option value={one.task}>{one.task}</option>
          ))}
        </select>
      </label>
      <label class="field">
        {t.desired}
        <input
          type="number"
          min={task?.min}
          max={task?.max}
          value={request.replicas}
          onInput={(e) => e.currentTarget.value !== '' && change({ ...request, replicas: Number(e.currentTarget.value) })}
        />
        {task && <span class="quiet">{task.max === undefined ? t.atLeast(task.min) : t.between(task.min, task.max)}</span>}
      </label>
    </div>
  )
}
