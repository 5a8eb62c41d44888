import { describe, expect, it } from 'vitest'
import type { Condition, Edge, JobRow, Moment, Part } from './api'
import { whole } from './axis'
import { named } from './compare'
import { lineOf, renamed } from './fields'
import { causeOf, clustered, endOf, fragment, parted, progressOf, resultOf, stepsOf, trendOf } from './glance'
import { draw } from './layout'
import { Buffer, mostLines, type Line } from './buffer'
import { asText, Finder, levelOf, lineAt, next, pieces, rowsOf, Tops } from './lines'
import { bestOf } from './recorded'
import { csv, hasLog, shifted, smoothed } from './smooth'

const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1) + seconds * 1000).toISOString()
const time = (seconds: number) => Date.parse(at(seconds))
const job = (more: Partial<JobRow> = {}): JobRow => ({
  namespace: 'rl', name: 'pong', uid: 'u', version: 'v2alpha1', lifecycle: 'WorkerLed', phase: 'Running', reason: '', ready: 1, wanted: 1, roles: [],
  gpus: 0, restarts: 0, reschedules: 0, createdAt: at(0), suspended: false, terminating: false, preemptible: false, ...more,
})
const moment = (seconds: number, kind: Moment['kind'], more: Partial<Moment> = {}): Moment => ({ at: at(seconds), kind, text: '', ...more })
const condition = (type: string, status: Condition['status'], since: number): Condition => ({ type, status, since: at(since), text: '' })

describe('the progress of a job', () => {
  const curves = [{ name: 'progress', points: [[time(0), 0], [time(100), 100], [time(200), 300]] }]
  const report = (progress: object) => JSON.stringify({ progress })
  it('tells what is left at the speed of late', () => {
    expect(progressOf({ job: job(), curves, profilings: report({ done: 300, total: 500, unit: 'step' }) })).toEqual({ done: 300, total: 500, unit: 'step', left: 100 })
  })
  it('tells no time that is left of a job that has ended, stands, or does not know its whole work', () => {
    expect(progressOf({ job: job({ phase: 'Failed' }), curves, profilings: report({ done: 300, total: 500 }) })?.left).toBeUndefined()
    expect(progressOf({ job: job(), curves: [], profilings: report({ done: 300, total: 500 }) })?.left).toBeUndefined()
    expect(progressOf({ job: job(), curves, profilings: report({ done: 300 }) })).toEqual({ done: 300, unit: '' })
  })
  it('is nothing where a report has none, or is no JSON', () => {
    for (const profilings of [undefined, '', '{', 'null', '7', '{"progress": null}', report({ done: 'x' }), report({ done: -1 })]) {
      expect(progressOf({ job: job(), curves, ...(profilings === undefined ? {} : { profilings }) })).toBeUndefined()
    }
  })
})

describe('the phases of a job', () => {
  it('have durations, and those before the first that was seen are known by their conditions', () => {
    const detail = { job: job(), conditions: [condition('Starting', 'False', 60), condition('Pending', 'False', 10), condition('Running', 'True', 60)], timeline: [moment(60, 'phase', { title: 'Running' })] }
    expect(stepsOf(detail, time(100)).map((s) => [s.phase, (s.to - s.from) / 1000])).toEqual([['Pending', 10], ['Starting', 50], ['Running', 40]])
  })
  it('end with the job', () => {
    const timeline = [moment(0, 'phase', { title: 'Running', end: at(50) }), moment(50, 'phase', { title: 'Succeeded' })]
    const finished = job({ phase: 'Succeeded', completedAt: at(50) })
    expect(endOf(finished)).toBe(time(50))
    expect(stepsOf({ job: finished, conditions: [], timeline }, time(9000)).map((s) => (s.to - s.from) / 1000)).toEqual([50, 0])
  })
  it('leave a time axis that stops with the job', () => {
    expect(whole([moment(0, 'event'), moment(70, 'event')], [], time(9000), time(50))).toEqual({ from: time(0), to: time(50) })
  })
})

describe('the cause of a trouble', () => {
  const trace = 'Pod pong-c-0 failed with exit code 1: Traceback (most recent call last):\n  File "a.py", line 1\nValueError: shapes differ'
  const failure = moment(50, 'failure', { title: 'Error', text: trace, object: 'c-0', warning: true })
  it('is one, with the line that matters first', () => {
    const cause = causeOf({ job: job({ phase: 'Failed', reason: 'BackoffLimitExceeded', message: 'failed too often' }), timeline: [failure] })
    expect(cause).toMatchObject({ reason: 'BackoffLimitExceeded', first: 'Pod pong-c-0 failed with exit code 1: ValueError: shapes differ', object: 'c-0', lasts: false })
    expect(cause?.whole).toContain('failed too often')
    expect(cause?.whole).toContain('\n  File "a.py", line 1\n')
  })
  it('says what would help against a failure, where the server knows it', () => {
    const killed = { ...failure, remedies: ['Raise the limit.'] }
    expect(causeOf({ job: job({ phase: 'Failed', reason: 'OOMKilled' }), timeline: [killed] })).toMatchObject({ remedies: ['Raise the limit.'], lasts: false })
    expect(causeOf({ job: job(), timeline: [failure] })?.remedies).toEqual([])
  })
  it('keeps the first trouble of a job that failed later of another', () => {
    const first = moment(5, 'event', { title: 'FailedScheduling', text: 'no node has 64 GPUs', warning: true })
    expect(causeOf({ job: job({ phase: 'Failed', reason: 'Error' }), timeline: [first, moment(6, 'event', { warning: true }), failure] })?.earlier).toBe(first)
  })
  it('says what would help a job that waits, and keeps its last failure', () => {
    const waiting = { namespace: 'rl', name: 'pong', why: 'no node has 64 GPUs', since: at(5), remedies: ['Add nodes.'] }
    expect(causeOf({ job: job({ phase: 'Pending', reason: 'Unschedulable' }), waiting, timeline: [failure] })).toMatchObject({ first: 'no node has 64 GPUs', remedies: ['Add nodes.'], lasts: true, earlier: failure })
  })
  it('is nothing where nothing is wrong, or a job has succeeded after all', () => {
    expect(causeOf({ job: job(), timeline: [] })).toBeUndefined()
    expect(causeOf({ job: job({ phase: 'Succeeded' }), timeline: [failure] })).toBeUndefined()
  })
  it('has a first line, and a part that a log may have', () => {
    expect(parted('one')).toEqual({ first: 'one', whole: '' })
    expect(parted('flag provided but not defined\nUsage:\n  -a')).toEqual({ first: 'flag provided but not defined', whole: 'flag provided but not defined\nUsage:\n  -a' })
    expect(parted('Pod a failed with exit code 1: line 3, in f\n    x()\nlib.ShapeError: x\n')).toMatchObject({ first: 'Pod a failed with exit code 1: lib.ShapeError: x' })
    expect(parted('j-0 was Unschedulable for 10m: no GPU; then pod j-1 has failed').first).toBe('j-0 was Unschedulable for 10m: no GPU')
    expect(fragment('Pod a failed with exit code 1: ValueError: x')).toBe('ValueError: x')
    expect(fragment('no node has 64 GPUs')).toBe('no node has 64 GPUs')
  })
})

describe('curves', () => {
  const curve = { name: 'a "b", c', unit: '1/s', points: [[time(0), 1], [time(1), 2.5]] }
  it('are smoothed without a pull to zero, and keep their gaps', () => {
    expect(smoothed([4, 4, null, 4], 0.9).map((v) => v && Math.round(v * 1e6) / 1e6)).toEqual([4, 4, null, 4])
    expect(smoothed([0, 10], 0.5)[1]).toBeCloseTo(20 / 3)
  })
  it('have a logarithm only if all values do', () => {
    expect(hasLog([curve])).toBe(true)
    expect(hasLog([{ name: 'x', points: [[0, 0]] }])).toBe(false)
  })
  it('are copied as a table that no spreadsheet takes for a formula', () => {
    const table = csv([{ job: '=cmd', curve }])
    expect(table).toBe(`job,name,unit,time,value\r\n'=cmd,"a ""b"", c",1/s,${at(0)},1\r\n'=cmd,"a ""b"", c",1/s,${at(1)},2.5\r\n`)
    expect(csv([{ job: 'a', curve: { name: 'x', x: 'replicas', points: [[2, -1]] } }])).toBe('job,name,unit,replicas,value\r\na,x,,2,-1\r\n')
  })
  it('of another job begin where this one does', () => {
    expect(shifted(curve, 1000).points[0]).toEqual([time(1), 1])
  })
  it('have marks that do not cover one another', () => {
    const all = [moment(0, 'event'), moment(1, 'event'), moment(50, 'event')]
    expect(clustered(all, (m) => (Date.parse(m.at) - time(0)) / 1000, 15).map((c) => c.moments.length)).toEqual([2, 1])
  })
})

describe('the lines of a log', () => {
  const line = (text: string, replica = 'c-0') => ({ replica, text })
  it('have a level by their words', () => {
    const lines = ['ERROR x', '{"level":"error"}', 'ValueError: x', 'Traceback (most recent call last):', 'E1129 12:00:00 x', 'panic: x', 'WARNING: x', 'level=warn msg="no error"', 'DEBUG x', 'INFO errors=0', 'step 7', '{"level":"info","msg":"error rate 0"}']
    expect(lines.map(levelOf)).toEqual(['error', 'error', 'error', 'error', 'error', 'error', 'warning', 'warning', 'debug', '', '', ''])
  })
  it('take the rows that they need, wide letters two cells', () => {
    expect([rowsOf('', 10), rowsOf('x'.repeat(10), 10), rowsOf('x'.repeat(11), 10), rowsOf('训练训练训练', 10), rowsOf('é'.repeat(10), 10)]).toEqual([1, 1, 2, 2, 1])
    const all = new Tops().of([line('x'), line('x'.repeat(25)), line('x')], 10)
    expect([...all]).toEqual([0, 1, 4, 5])
    expect([0, 1, 3, 4, 99].map((row) => lineAt(all, row))).toEqual([0, 1, 1, 2, 2])
    expect(lineAt(new Tops().of([], 10), 0)).toBe(0)
  })
  it('are searched whatever the case, one match after another', () => {
    const lines = [line('Round 1'), line('x'), line('round 2')]
    expect(new Finder().find(lines, 'ROUND')).toMatchObject({ places: [0, 2], lines: [lines[0], lines[2]], firstError: -1 })
    expect(new Finder().find(lines, '').places).toEqual([])
    expect(pieces('a Round, a ROUND', 'round')).toEqual(['a ', 'Round', ', a ', 'ROUND', ''])
    expect([next(2, -1, 1), next(2, 1, 1), next(2, 0, -1), next(0, -1, 1)]).toEqual([0, 0, 1, -1])
  })
  it('are found, and their rows counted, each once as they come, up to 100,000', () => {
    let reads = 0
    class Counted {
      replica = 'c-0'
      constructor(private readonly number: number) {}
      get text() {
        reads++
        return `${this.number % 1000 === 999 ? 'ERROR' : 'round'} ${this.number} of training`
      }
    }
    const [buffer, finder, tops] = [new Buffer(), new Finder(), new Tops()]
    let count = 0
    const append = (batch: number) => {
      const added: Line[] = Array.from({ length: batch }, () => new Counted(count++))
      buffer.add(added)
      // A frame asks for all of them.
      return { found: finder.find(buffer.lines, 'ROUND 77'), rows: tops.of(buffer.lines, 20) }
    }
    for (let i = 0; i < 999; i++) append(100)
    const { found, rows } = append(100)
    expect(buffer.lines).toHaveLength(mostLines)
    // For its level, the search and its rows.
    expect(reads).toBe(3 * mostLines)
    expect(found.places).toHaveLength(1 + 10 + 100 + 1000 - 1)
    expect(found.firstError).toBe(999)
    // Only numbers with two digits leave room in a row.
    expect(rows.at(-1)).toBe(2 * mostLines - 100)
  })
  it('are looked at again once the first ones are dropped, the text is another, or the width', () => {
    const buffer = new Buffer(10)
    const [finder, tops] = [new Finder(), new Tops()]
    const fresh = (text: string, columns: number) => [new Finder().find(buffer.lines, text).places, [...new Tops().of(buffer.lines, columns)], new Finder().find(buffer.lines, text).firstError]
    for (let i = 0; i < 50; i++) {
      buffer.add([line(`${i % 9 === 3 ? 'ERROR' : 'step'} ${i} ${'x'.repeat(i)}`)])
      for (const [text, columns] of [['1', 10], ['2', 20], ['2', 20]] as const) {
        const found = finder.find(buffer.lines, text)
        expect([found.places, [...tops.of(buffer.lines, columns)], found.firstError]).toEqual(fresh(text, columns))
        expect(found.firstFoundError).toBe(found.lines.findIndex((one) => one.level === 'error'))
        expect(found.lines).toEqual(found.places.map((place) => buffer.lines[place]))
      }
    }
    expect(buffer.dropped).toBeGreaterThan(30)
    expect(finder.find([], '2').places).toEqual([])
  })
  it('are saved as they are', () => {
    expect(asText([{ replica: 'c-0', time: at(0), text: 'x' }, { replica: '', text: 'notice' }])).toBe(`${at(0)} c-0 x\nnotice\n`)
  })
})

describe('the picture of replicas', () => {
  const part = (name: string, role: string): Part => ({ name, role, state: 'Running', ready: true, restarts: 0 })
  const parts = [part('co', 'coordinator'), part('l-0', 'learner'), part('c-0', 'collector'), part('c-1', 'collector')]
  const edges: Edge[] = [{ from: 'co', to: 'c-0', kind: 'commands' }, { from: 'co', to: 'c-1', kind: 'commands' }, { from: 'c-0', to: 'l-0', kind: 'reports' }]
  it('leads lines between boxes that others are between below all boxes', () => {
    const picture = draw(parts, edges)
    const below = picture.lines.filter((line) => line.kind === 'commands')
    expect(below).toHaveLength(1)
    const lowest = Math.max(...picture.boxes.map((b) => b.y + b.height))
    const level = Number(/H[\d.]+Q[\d.]+ ([\d.]+)/.exec(below[0]?.path ?? '')?.[1])
    expect(level).toBeGreaterThan(lowest)
    expect(level).toBeLessThan(picture.height)
  })
  it('is as wide as a phone where it must be, and says its lines in words', () => {
    const picture = draw(parts, edges, 340)
    expect(picture.lines).toEqual([])
    expect(picture.pairs).toEqual([{ from: 'coordinator', to: 'collector', kind: 'commands' }, { from: 'collector', to: 'learner', kind: 'reports' }])
    for (const box of picture.boxes) for (const tile of box.tiles) expect(tile.x + 148).toBeLessThan(340)
  })
  it('is a grid of marks beyond eight replicas', () => {
    const many = (count: number) => Array.from({ length: count }, (_, i) => part(`c-${i}`, 'collector'))
    expect([8, 9].map((count) => draw(many(count), []).boxes[0]?.dense)).toEqual([false, true])
  })
})

describe('the trend of a job', () => {
  const curve = (values: number[], kind: 'reward' | 'other' = 'reward') => [{ name: 'return', kind, points: values.map((value, i) => [time(i * 60), value]) }]
  it('is how the reward goes of late, compared with the time before', () => {
    expect(trendOf(curve([0, 0, 0, 1, 2, 3, 8, 9, 10]))).toEqual({ name: 'return', way: 'rises', from: 2, to: 9, span: 300 })
    expect(trendOf(curve([0, 9, 9, 9, 9, 9, 5, 5, 5]))?.way).toBe('falls')
    expect(trendOf(curve([0, 100, 100, 100, 101, 100, 100, 101, 100]))?.way).toBe('still')
    expect(trendOf(curve([7, 7, 7, 7, 7, 7]))?.way).toBe('still')
  })
  it('is not known of few points, or of what is no reward', () => {
    expect(trendOf(curve([1, 2, 3, 4, 5]))).toBeUndefined()
    expect(trendOf(curve([1, 2, 3, 4, 5, 6], 'other'))).toBeUndefined()
    expect(trendOf([])).toBeUndefined()
  })
})

describe('what a job came to', () => {
  const curve = (name: string, values: number[], more = {}) => ({ name, points: values.map((value, i) => [time(i * 60), value]), ...more })
  it('is the last and the best value of its first curve', () => {
    expect(resultOf([curve('by', [1], { x: 'replicas' }), curve('reward', [1, 9, 9, 4]), curve('other', [5])])).toEqual({ name: 'reward', final: 4, best: { value: 9, at: time(60) } })
    expect(resultOf([curve('reward', [1, 2])])).toEqual({ name: 'reward', final: 2, best: { value: 2, at: time(60) } })
  })
  it('is best where it is lowest for a loss, as in the history', () => {
    expect(resultOf([curve('valueLoss', [3, -1, 2])])?.best).toEqual({ value: -1, at: time(60) })
  })
  it('has no best of one value, and is nothing without one', () => {
    expect(resultOf([curve('reward', [7])])).toEqual({ name: 'reward', final: 7 })
    expect(resultOf([])).toBeUndefined()
    expect(resultOf([curve('reward', [])])).toBeUndefined()
    expect(resultOf([curve('GPUs', [7], { kind: 'usage' })])).toBeUndefined()
  })
})

describe('the best run', () => {
  const series = (name: string, best: (number | null)[], more = {}) => ({ name, best, last: best, reached: best, lines: [], ...more })
  it('has the best reward, and what no other run that reports it has', () => {
    const fields = [
      { field: 'spec.a', values: ['1', '2', '1'] },
      { field: 'spec.b', values: ['x', 'y', 'y'] },
    ]
    expect(bestOf({ series: [series('loss', [1, 2, 3], { lowest: true }), series('reward', [5, 9, null], { kind: 'reward' })], fields })).toEqual({
      place: 1, series: 'reward', value: 9, next: 5, fields: [{ field: 'spec.a', value: '2', others: ['1'] }, { field: 'spec.b', value: 'y', others: ['x'] }],
    })
    expect(bestOf({ series: [series('reward', [null, 9, null])], fields })?.fields).toEqual([])
  })
  it('has the lowest value where that is best, and is none without a value', () => {
    expect(bestOf({ series: [series('loss', [3, 1, 2], { lowest: true })], fields: [] })).toEqual({ place: 1, series: 'loss', value: 1, next: 2, fields: [] })
    expect(bestOf({ series: [series('loss', [null, null])], fields: [] })).toBeUndefined()
    expect(bestOf({ series: [], fields: [] })).toBeUndefined()
  })
})

describe('the fields of a manifest', () => {
  const yaml = `# a job
apiVersion: v1
metadata:
  name: pong
spec:
  tasks:
  - type: learner
    replicas: 1
  - name: second
    type: collector

    template:
      spec:
        containers:
        - image: di
          name: main
        -
          name: side
    replicas: 2
  elastic: {task: collector}
`
  const of = (field: string) => yaml.split('\n')[lineOf(yaml, field)]?.trim()
  it('are found by their paths', () => {
    expect(of('metadata.name')).toBe('name: pong')
    expect(of('spec.tasks[0].type')).toBe('- type: learner')
    expect(of('spec.tasks[0].replicas')).toBe('replicas: 1')
    expect(of('spec.tasks[1].replicas')).toBe('replicas: 2')
    expect(of('spec.tasks[1].template.spec.containers[0].name')).toBe('name: main')
    expect(of('spec.tasks[1].template.spec.containers[1].name')).toBe('name: side')
  })
  it('that are missing have the line of what is above them', () => {
    expect(of('spec.tasks[1].template.spec.containers[0].resources')).toBe('- image: di')
    expect(of('spec.elastic.minReplicas')).toBe('elastic: {task: collector}')
    expect(lineOf(yaml, 'status')).toBe(-1)
    expect(lineOf('', 'spec')).toBe(-1)
  })
  it('give a clone another name', () => {
    expect(renamed(yaml, 'pong-copy')).toContain('  name: pong-copy\nspec:')
    expect(renamed('spec: {}', 'x')).toBe('spec: {}')
  })
})

describe('the jobs that are drawn below another one', () => {
  it('are those of the link, each once, and at most eight', () => {
    const names = ['a/b', 'a/b', 'nonsense', 'a/', ...Array.from({ length: 9 }, (_, i) => `n/job-${i}`)]
    const query = new URLSearchParams(names.map((name) => ['with', name]))
    expect(named(query)).toEqual(['a/b', ...Array.from({ length: 7 }, (_, i) => `n/job-${i}`)])
  })
})
