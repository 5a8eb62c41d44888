// The API of kubectl di ui. Its types are generated from openapi.yaml.
import type { components } from './api.gen'

type Schemas = components['schemas']
export type Session = Schemas['Session']
export type JobPage = Schemas['JobPage']
export type JobRow = Schemas['JobRow']
export type JobDetail = Schemas['JobDetail']
export type Part = Schemas['Part']
export type Condition = Schemas['Condition']
export type Edge = Schemas['Edge']
export type Moment = Schemas['Moment']
export type Curve = Schemas['Curve']
export type Action = Schemas['Action']
export type ActionRequest = Schemas['ActionRequest']
export type ActionResult = Schemas['ActionResult']
export type Manifest = Schemas['Manifest']
export type Difference = Schemas['Difference']
export type Cluster = Schemas['Cluster']
export type Room = Pick<Cluster, 'gpus' | 'cpu' | 'memory'>
export type Team = Schemas['Team']
export type Created = Schemas['Created']
export type Finding = Schemas['Finding']
export type Cost = Schemas['Cost']
export type Waiting = Schemas['Waiting']
export type Plan = Schemas['Plan']
export type HistoryPage = Schemas['HistoryPage']
export type HistoryRow = Schemas['HistoryRow']
export type HistoryJob = Schemas['HistoryJob']
export type HistoryPart = Schemas['HistoryPart']
export type HistoryTails = Schemas['HistoryTails']
export type HistoryTail = Schemas['HistoryTail']
export type Usage = Schemas['Usage']
export type HistoryCurves = Schemas['HistoryCurves']
export type HistoryComparison = Schemas['HistoryComparison']
export type HistorySums = Schemas['HistorySums']
export type HistorySum = Schemas['HistorySum']
export type ComparedSeries = Schemas['ComparedSeries']

/** Refused is an answer of the server that is an error. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    /** What would mend it. */
    more: Partial<Schemas['Error']> = {},
  ) {
    super(message)
    this.right = more.right ?? ''
    this.grant = more.grant ?? []
    this.near = more.near ?? []
    this.findings = more.findings ?? []
  }
  /** What the caller may not do, the commands that allow it, and the jobs that may be meant. */
  readonly right: string
  readonly grant: string[]
  readonly near: string[]
  /** What the API server refuses of a job, field by field. */
  readonly findings: Finding[]
}

export function jobPath(namespace: string, name: string): string {
  return `api/v1/namespaces/${encodeURIComponent(namespace)}/jobs/${encodeURIComponent(name)}`
}

/** recordedPath is that of a recorded job, or of a part of it. */
export function recordedPath(namespace: string, name: string, uid: string, part = ''): string {
  const rest = `namespaces/${encodeURIComponent(namespace)}/jobs/${encodeURIComponent(name)}${part && `/${part}`}`
  return `api/v1/history/${rest}${uid && `?uid=${encodeURIComponent(uid)}`}`
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T
  const text = await response.text()
  let error: Partial<Schemas['Error']> = {}
  try {
    error = JSON.parse(text) as Partial<Schemas['Error']>
  } catch {
    // The answer is no JSON: its text is all there is.
  }
  throw new Refused(response.status, error.reason ?? '', error.message ?? (text.slice(0, 500) || response.statusText), error)
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return answer<T>(await fetch(path, { signal: signal ?? null, headers: { Accept: 'application/json' } }))
}

/** refusal returns why a stream is refused, which an EventSource does not tell; empty if it is not. */
export async function refusal(path: string, signal: AbortSignal): Promise<string> {
  const response = await fetch(path, { signal })
  if (response.ok) {
    await response.body?.cancel()
    return ''
  }
  return answer(response).then(() => '', (error: Error) => error.message)
}

/** create asks for a job, or for what the API server finds in it. */
export async function create(yaml: string, dryRun: boolean, signal?: AbortSignal): Promise<Created> {
  return answer<Created>(await post('api/v1/jobs/new', { dryRun, yaml }, signal))
}

async function post(path: string, body: object, signal?: AbortSignal): Promise<Response> {
  return fetch(path, {
    method: 'POST',
    signal: signal ?? null,
    headers: { 'Content-Type': 'application/json', 'X-DI-UI': '1' },
    body: JSON.stringify(body),
  })
}

export async function act(job: JobRow, action: Action['name'], request: ActionRequest): Promise<ActionResult> {
  return answer<ActionResult>(await post(`${jobPath(job.namespace, job.name)}/actions/${action}`, { uid: job.uid, ...request }))
}
