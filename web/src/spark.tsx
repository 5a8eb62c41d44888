// A curve in a row of the table.
import type { Curve } from './api'
import { useApp } from './app'
import { short } from './format'

/** Spark draws a curve of one line's height. */
export function Spark({ curve }: { curve: Curve | undefined }) {
  const { t } = useApp()
  const points = curve?.points ?? []
  const last = points.at(-1)
  if (!curve || !last) return null
  const xs = points.map((p) => p[0] ?? 0)
  const ys = points.map((p) => p[1] ?? 0)
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)]
  const place = (p: number[]) =>
    `${(((p[0] ?? 0) - left) / (right - left || 1)) * 76 + 2},${18 - (((p[1] ?? 0) - low) / (high - low || 1)) * 14}`
  const unit = curve.unit ? ` ${curve.unit}` : ''
  return (
    <span class="spark">
      <svg width="80" height="22" viewBox="0 0 80 22" role="img" aria-label={t.curveText(curve.name, short(last[1] ?? 0), short(low), short(high))}>
        <polyline points={points.map(place).join(' ')} />
      </svg>
      <span title={curve.name + unit}>{short(last[1] ?? 0)}</span>
    </span>
  )
}
