// What the curve that matters most of a job came to.
import type { Curve } from './api'
import { useApp } from './app'
import { short, stamp } from './format'
import { resultOf } from './glance'

/** Result says the last and the best value of the first curve of a job that has ended. */
export function Result({ curves, now }: { curves: Curve[]; now: number }) {
  const { t } = useApp()
  const result = resultOf(curves)
  if (!result) return null
  const { name, final, best } = result
  return (
    <p class="result">
      <b>{t.finalValue(name, short(final))}</b> <span class="quiet">{best && (best.value === final ? t.bestAtEnd : t.bestOfAll(short(best.value), stamp(best.at, now)))}</span>
    </p>
  )
}
