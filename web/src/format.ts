// Numbers and times as people read them. All is pure: the present is a parameter.

/** age returns a duration in its largest unit that is useful, as kubectl does. */
export function age(from: string | undefined, now: number): string {
  if (!from) return ''
  const seconds = Math.max(0, Math.floor((now - Date.parse(from)) / 1000))
  if (Number.isNaN(seconds)) return ''
  if (seconds < 120) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 120) return `${minutes}m`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return `${hours}h`
  return `${Math.floor(hours / 24)}d`
}

const two = (n: number) => String(n).padStart(2, '0')

/** clock returns the time of the day: 14:05:09. */
export function clock(at: number | string): string {
  const date = new Date(at)
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
}

/** timeOf returns a time on an axis that lasts milliseconds: 14:05:09, 14:05 or 01-31 14:05. */
export function timeOf(at: number, lasts: number): string {
  const date = new Date(at)
  const time = lasts < 600_000 ? clock(at) : clock(at).slice(0, 5)
  return lasts < 86_400_000 ? time : `${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`
}

/** stamp returns the time of the day, after the date if it is another day. */
export function stamp(at: number | string, now: number): string {
  const date = new Date(at)
  if (date.toDateString() === new Date(now).toDateString()) return clock(at)
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at)}`
}

/** short returns a number in about four characters: 12345 becomes 12.3k. */
export function short(value: number): string {
  const [factor, unit] = unitOf(value)
  return trim(value / factor) + unit
}

/** exact returns a number with five digits, in groups of three: 12,345. */
export function exact(value: number): string {
  const size = Math.abs(value)
  if (size !== 0 && (size < 0.001 || size >= 1e9)) return value.toExponential(3)
  return value.toLocaleString('en', { maximumSignificantDigits: size >= 1e5 ? 21 : 5, maximumFractionDigits: size >= 1e5 ? 0 : 5 })
}

/** ticks formats the values at an axis, all with the same unit and with as many digits as they differ by. */
export function ticks(values: number[]): string[] {
  const largest = Math.max(...values.map(Math.abs))
  if (largest < 0.001) return values.map(short)
  const [factor, unit] = unitOf(largest)
  const isExact = (digits: number) => values.every((v) => Math.abs(Number((v / factor).toFixed(digits)) - v / factor) < 1e-6)
  let digits = 0
  while (digits < 6 && !isExact(digits)) digits++
  return values.map((v) => (v === 0 ? '0' : (v / factor).toFixed(digits) + unit))
}

/** cores returns thousandths of a CPU as CPUs. */
export function cores(milli: number): string {
  return short(milli / 1000)
}

/** bytes returns an amount of memory in its largest unit. */
export function bytes(size: number): string {
  const unit = ([[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']] as const).find(([factor]) => size >= factor)
  return unit ? `${trim(size / unit[0])} ${unit[1]}` : `${size} B`
}

function unitOf(value: number): readonly [number, string] {
  const size = Math.abs(value)
  return ([[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const).find(([factor]) => size >= factor) ?? [1, '']
}

function trim(value: number): string {
  const size = Math.abs(value)
  if (size === 0) return '0'
  if (size < 0.001) return value.toExponential(1)
  return String(Number(value.toFixed(size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0)))
}
