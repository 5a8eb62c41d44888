import { describe, expect, it } from 'vitest'
import type { Edge, Moment, Part } from './api'
import { last, nearest, position, whole } from './axis'
import { Buffer } from './buffer'
import { chosenWith, mostChosen, named, offers, roles } from './chosen'
import { age, short, ticks, timeOf } from './format'
import { draw } from './layout'
import { isTime, keyOf, lines, merged, mostCompared, namesOf, seconds, toggled, withUsage } from './recorded'
import { historyLink, jobLink, jobsLink, nodeLink, parse, recordedLink } from './route'
import { kindOf } from './state'
import { delay } from './stream'
import { en } from './texts.en'
import { zh } from './texts.zh'
import { ask, visible } from './window'

const part = (name: string, role: string, state = 'Running'): Part => ({ name, role, state, ready: state === 'Running', restarts: 0 })

describe('the picture', () => {
  it('draws roles from the coordinator to the collectors, whatever their order', () => {
    const picture = draw([part('c-0', 'collector'), part('l-0', 'learner'), part('co', 'coordinator')], [])
    expect(picture.boxes.map((b) => b.role)).toEqual(['coordinator', 'learner', 'collector'])
    const rights = picture.boxes.map((b) => b.x + b.width)
    expect(picture.boxes.slice(1).every((b, i) => b.x > (rights[i] ?? 0))).toBe(true)
  })
  it('keeps all tiles in their boxes and the picture', () => {
    const parts = Array.from({ length: 500 }, (_, i) => part(`c-${i}`, 'collector'))
    const picture = draw(parts, [])
    for (const box of picture.boxes) {
      for (const one of box.tiles) {
        expect(one.x).toBeGreaterThan(box.x)
        expect(one.y).toBeGreaterThan(box.y)
        expect(one.x).toBeLessThan(box.x + box.width)
        expect(one.y).toBeLessThan(picture.height)
      }
    }
  })
  it('draws the failed replica of a thousand', () => {
    const parts = Array.from({ length: 1000 }, (_, i) => part(`c-${i}`, 'collector', i === 999 ? 'OOMKilled' : 'Running'))
    const [box] = draw(parts, []).boxes
    expect(box?.tiles[0]?.part.name).toBe('c-999')
    expect(box?.hidden).toBe(1000 - (box?.tiles.length ?? 0))
  })
  it('draws one line between boxes where there are many edges', () => {
    const parts = [part('l', 'learner'), ...Array.from({ length: 200 }, (_, i) => part(`c-${i}`, 'collector'))]
    const edges: Edge[] = parts.slice(1).map((p) => ({ from: p.name, to: 'l', kind: 'reports' }))
    expect(draw(parts, edges).lines).toHaveLength(1)
  })
  it('adds di-server where an edge leads to it, and leaves out edges to what is unknown', () => {
    const picture = draw([part('co', 'coordinator')], [{ from: 'co', to: 'di-server', kind: 'requests' }, { from: 'co', to: 'x', kind: 'commands' }])
    expect(picture.boxes.map((b) => b.role)).toEqual(['di-server', 'coordinator'])
    expect(picture.lines).toHaveLength(1)
  })
})

describe('the time axis', () => {
  const moment = (at: string): Moment => ({ at, kind: 'event', text: '' })
  it('begins with the first moment or point', () => {
    const now = Date.parse('2026-01-01T12:00:00Z')
    const early = now - 7_200_000
    expect(whole([moment('2026-01-01T11:00:00Z')], [{ name: 'reward', points: [[early, 1]] }], now)).toEqual({ from: early, to: now })
    expect(whole([], [{ name: 'speed', x: 'replicas', points: [[4, 1]] }], now)).toEqual({ from: now, to: now + 10_000 })
    expect(whole([], [{ name: 'reward', points: [[early, 1], [now + 2000, 2]] }], now)).toEqual({ from: early, to: now + 2000 })
  })
  it('shows the last part of it', () => {
    expect(last({ from: 0, to: 1000 }, 100)).toEqual({ from: 900, to: 1000 })
    expect(last({ from: 0, to: 1000 }, 0)).toEqual({ from: 0, to: 1000 })
    expect(position(500, { from: 0, to: 1000 }, 50, 150)).toBe(100)
  })
  it('finds what happened next to a time of the day', () => {
    const local = (hours: number, minutes: number) => moment(new Date(2026, 0, 1, hours, minutes).toISOString())
    const timeline = [local(13, 0), local(14, 4), local(14, 20)]
    expect(nearest(timeline, '14:05')).toBe(1)
    expect(nearest(timeline, '')).toBe(-1)
    expect(nearest([], '14:05')).toBe(-1)
  })
})

describe('long lists', () => {
  it('draw what is in view', () => {
    expect(visible(0, 380, 38, 5000)).toEqual({ first: 0, end: 20 })
    expect(visible(38 * 4990, 380, 38, 5000)).toEqual({ first: 4980, end: 5000 })
    expect(visible(38 * 4990, 380, 38, 3)).toEqual({ first: 3, end: 3 })
  })
  it('ask for pages that hold all of it', () => {
    for (let first = 0; first < 4900; first += 7) {
      const { offset, limit } = ask({ first, end: first + 60 })
      expect(offset).toBeLessThanOrEqual(first)
      expect(offset + limit).toBeGreaterThanOrEqual(first + 60)
      expect(limit).toBeLessThanOrEqual(200)
    }
  })
  it('keep the last lines of a log and count the others', () => {
    const buffer = new Buffer(10)
    for (let i = 0; i < 100; i++) buffer.add([{ replica: '', text: String(i) }])
    expect(buffer.lines.at(-1)?.text).toBe('99')
    expect(buffer.lines.length).toBeLessThanOrEqual(11)
    expect(buffer.dropped + buffer.lines.length).toBe(100)
  })
})

describe('the choice of replicas', () => {
  const parts = [part('c-0', 'collector'), part('c-1', 'collector'), part('learner-0', 'learner')].map((p) => ({ ...p, pod: p.name }))
  it('offers those with a log, and those that are chosen and gone', () => {
    expect(offers([...parts, part('c-2', 'collector', 'Missing')], ['c-1', 'c-9']).map((o) => o.name)).toEqual(['c-9', 'c-0', 'c-1', 'learner-0'])
    expect(offers([part('c-2', 'collector', 'Missing')], ['c-2']).map((o) => o.state)).toEqual(['Missing'])
  })
  it('finds a replica by a part of its name', () => {
    expect(named(offers(parts, []), ' LEARN').map((o) => o.name)).toEqual(['learner-0'])
    expect(named(offers(parts, []), '')).toHaveLength(3)
  })
  it('takes all of a role, if it has several', () => {
    expect(roles(offers(parts, []))).toEqual([['collector', ['c-0', 'c-1']]])
    expect(chosenWith(['c-1'], ['c-0', 'c-1'], true)).toEqual(['c-1', 'c-0'])
    expect(chosenWith(['c-1', 'learner-0', 'c-0'], ['c-0', 'c-1'], false)).toEqual(['learner-0'])
  })
  it('ends where a request does', () => {
    const many = Array.from({ length: 100 }, (_, i) => `c-${i}`)
    expect(chosenWith(['learner-0'], many, true)).toEqual(['learner-0', ...many].slice(0, mostChosen))
  })
})

describe('texts', () => {
  it('say ages as kubectl does', () => {
    const now = Date.parse('2026-01-10T00:00:00Z')
    expect(age('2026-01-09T23:59:00Z', now)).toBe('60s')
    expect(age('2026-01-09T23:00:00Z', now)).toBe('60m')
    expect(age('2026-01-09T00:00:00Z', now)).toBe('24h')
    expect(age('2026-01-01T00:00:00Z', now)).toBe('9d')
    expect(age(undefined, now)).toBe('')
  })
  it('shorten numbers', () => {
    expect([0, 0.25, 3.14159, 42.42, 12345, 2.5e6].map(short)).toEqual(['0', '0.25', '3.14', '42.4', '12.3k', '2.5M'])
  })
  it('tell the values of an axis apart', () => {
    expect(ticks([1490, 1500, 1510])).toEqual(['1.49k', '1.50k', '1.51k'])
    expect(ticks([0, 2.5, 5])).toEqual(['0', '2.5', '5.0'])
    expect(ticks([24, 26])).toEqual(['24', '26'])
    expect(ticks([0.0001, 0.0002])).toEqual(['1.0e-4', '2.0e-4'])
  })
  it('are the same in both languages', () => {
    const keys = (o: object): string[] => Object.entries(o).flatMap(([k, v]) => (typeof v === 'object' ? keys(v).map((s) => `${k}.${s}`) : [k]))
    expect(keys(zh)).toEqual(keys(en))
  })
})

describe('times on an axis', () => {
  it('have seconds or a date only where it helps', () => {
    const at = new Date(2026, 0, 31, 14, 5, 9).getTime()
    expect([60_000, 3_600_000, 90_000_000].map((lasts) => timeOf(at, lasts))).toEqual(['14:05:09', '14:05', '01-31 14:05'])
  })
})

describe('links', () => {
  it('lead back to where they came from', () => {
    expect(parse(jobLink('rl', 'a/b', 'logs', { replica: 'c-0' }))).toMatchObject({ view: 'job', namespace: 'rl', name: 'a/b', tab: 'logs' })
    const several = parse(jobLink('rl', 'a', 'logs', { replica: ['c-0', 'c&1'] }))
    expect(several.query.getAll('replica')).toEqual(['c-0', 'c&1'])
    expect(parse('#/cluster').view).toBe('cluster')
    expect(parse(nodeLink('a b&c')).query.get('node')).toBe('a b&c')
    expect(parse('#/%E0%A4%A').view).toBe('unknown')
    expect(parse('#/no/such/view')).toMatchObject({ view: 'unknown', path: '/no/such/view' })
    expect(parse('#/new?from=rl%2Fpong').query.get('from')).toBe('rl/pong')
  })
  it('change filters and keep the others', () => {
    expect(jobsLink(new URLSearchParams('search=a&phase=Failed'), { phase: ['Running', 'Pending'] })).toBe('#/jobs?search=a&phase=Running&phase=Pending')
    expect(jobsLink(new URLSearchParams('search=a'), { search: '' })).toBe('#/jobs')
  })
})

describe('states', () => {
  it('show a word that is not known as a failure, and a replica that is not ready as starting', () => {
    expect(kindOf('CrashLoopBackOff')).toBe('failed')
    expect(kindOf('Running', false)).toBe('starting')
  })
})

describe('a lost connection', () => {
  it('is tried again at growing delays, up to 15 seconds', () => {
    expect([0, 1, 2, 3, 9, 1000].map(delay)).toEqual([500, 1000, 2000, 4000, 15000, 15000])
  })
})

describe('the history of jobs', () => {
  it('has links that keep filters, and begin with the newest job after another filter', () => {
    const query = new URLSearchParams('phase=Failed&from=abc')
    expect(historyLink(query, { user: 'jane' })).toBe('#/history?phase=Failed&user=jane')
    expect(historyLink(query, { job: ['a/b/c', 'a/d/e'] })).toBe('#/history?phase=Failed&from=abc&job=a%2Fb%2Fc&job=a%2Fd%2Fe')
    expect(parse('#/history?since=7')).toMatchObject({ view: 'history' })
    expect(parse('#/history/compare?job=a')).toMatchObject({ view: 'comparison' })
    expect(parse(recordedLink({ namespace: 'rl', name: 'a b', uid: '1/2' }))).toMatchObject({ view: 'recorded', namespace: 'rl', name: 'a b' })
  })
  it('continues recorded curves by what the page saw later', () => {
    const recorded = [{ name: 'reward', points: [[1, 1], [2, 2]] }, { name: 'cpu/learner', unit: 'm', points: [[1, 5]] }]
    const seen = [
      { name: 'reward', kind: 'reward' as const, points: [[2, 2], [3, 3]] },
      { name: 'loss', points: [[3, 1]] },
      { name: 'throughput', x: 'replicas' as const, points: [[2, 9]] },
    ]
    const all = merged(recorded, seen)
    expect(all.map((curve) => curve.name)).toEqual(['reward', 'cpu/learner', 'loss', 'throughput'])
    expect(all[0]).toEqual({ name: 'reward', kind: 'reward', points: [[1, 1], [2, 2], [3, 3]] })
  })
  it('begins with the curve that a report names', () => {
    const recorded = [{ name: 'reward', kind: 'reward' as const, points: [[1, 1]] }, { name: 'success', points: [[1, 5]] }]
    const seen = [{ name: 'success', kind: 'reward' as const, points: [[2, 6]] }, { name: 'reward', kind: 'reward' as const, points: [[2, 2]] }]
    expect(merged(recorded, seen).map((curve) => [curve.name, curve.points.length])).toEqual([['success', 2], ['reward', 2]])
  })
  it('shows what pods used after the other curves over time', () => {
    const curves = [{ name: 'reward', points: [] }, { name: 'throughput', x: 'replicas' as const, points: [] }]
    expect(withUsage(curves, [{ name: 'learner CPU', points: [] }]).map((curve) => curve.name)).toEqual(['reward', 'learner CPU', 'throughput'])
    expect(withUsage(curves, [])).toBe(curves)
  })
  it('compares at most eight jobs', () => {
    const eight = Array.from({ length: mostCompared }, (_, i) => `a/${i}/u`)
    expect(toggled(eight, 'a/9/u')).toEqual(eight)
    expect(toggled(eight, 'a/3/u')).toHaveLength(7)
    expect(toggled([], keyOf({ namespace: 'a', name: 'b', uid: 'c' }))).toEqual(['a/b/c'])
  })
  it('tells jobs of one name apart by their UIDs', () => {
    const job = (name: string, uid: string) => ({ job: { name, uid } })
    expect(namesOf([job('pong', '123456789'), job('pong', 'abcdefghi'), job('other', 'x')])).toEqual(['pong 12345678', 'pong abcdefgh', 'other'])
  })
  it('writes spans of time in two units', () => {
    expect([0, 59.6, 61, 3_600, 7_500, 90_000, 172_800].map(seconds)).toEqual(['0s', '1m', '1m 1s', '1h', '2h 5m', '1d 1h', '2d'])
    expect(seconds(null)).toBe('')
  })
  it('knows times, and the first line of a text', () => {
    expect(isTime('2026-03-01T12:05:00Z')).toBe(true)
    expect(isTime('2026-03-01')).toBe(false)
    expect(lines('a\nb\nc')).toEqual(['a', 'b\nc'])
    expect(lines('a')).toEqual(['a', ''])
  })
})
