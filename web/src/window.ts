// Which rows of a long list are drawn, and which are asked for: pure.

export interface Window {
  first: number
  /** The row after the last. */
  end: number
}

/** visible returns the rows that are drawn: those in view, and some before and after. */
export function visible(top: number, height: number, row: number, count: number, extra = 10): Window {
  const first = Math.max(0, Math.min(Math.floor(top / row) - extra, count))
  return { first, end: Math.min(count, Math.ceil((top + height) / row) + extra) }
}

/** ask returns the rows to ask the server for. They are the same while a view moves a little. */
export function ask(shown: Window, size = 100): { offset: number; limit: number } {
  const offset = Math.floor(shown.first / size) * size
  const limit = Math.ceil(Math.max(1, shown.end - offset) / size) * size
  return { offset, limit: Math.min(limit, 200) }
}
