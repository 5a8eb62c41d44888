// The curves of several jobs over one another, by the time since each started.
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import type { ComparedSeries } from './api'
import { useApp } from './app'
import { dashes, labelFont, left, useWidth } from './chart'
import { short, ticks } from './format'
import { seconds } from './recorded'

// Spans of time at which labels are whole numbers of a unit.
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000]

export function Overlay({ series, names }: { series: ComparedSeries; names: string[] }) {
  const { t, theme } = useApp()
  const [box, width] = useWidth()
  const element = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (!element.current || width === 0) return
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name)
    const axis = { font: labelFont, stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } }
    const shown = series.lines.map((points, i) => ({ points, i })).filter(({ points }) => points.length > 0)
    if (shown.length === 0) return
    const data = uPlot.join(shown.map(({ points }) => [points.map((p) => p[0] ?? 0), points.map((p) => p[1] ?? 0)] as uPlot.AlignedData))
    const plot = new uPlot(
      {
        width,
        height: 200,
        padding: [8, 24, 0, 0],
        cursor: { drag: { x: false, y: false }, sync: { key: 'since' } },
        legend: { show: true, live: true },
        scales: { x: { time: false } },
        axes: [
          { ...axis, size: 30, space: 80, incrs: steps, values: (_, values) => values.map(seconds) },
          { ...axis, size: left, values: (_, values) => ticks(values) },
        ],
        series: [
          { label: t.sinceStart, value: (_, value) => (value === null ? '' : seconds(value)) },
          ...shown.map(({ points, i }) => ({
            label: names[i] ?? '',
            stroke: colour(`--line-${i}`),
            dash: dashes[i] ?? [],
            width: 2,
            spanGaps: true,
            points: { show: points.length < 2, size: 7 },
            value: (_: uPlot, value: number | null) => (value === null ? '' : short(value)),
          })),
        ],
      },
      data,
      element.current,
    )
    return () => plot.destroy()
  }, [series, names.join('\n'), width, theme, t])
  const title = t.overlay(series.name + (series.unit ? ` ${series.unit}` : ''), series.lines.filter((points) => points.length > 0).length)
  return (
    <figure class="chart overlay" aria-label={title} ref={box}>
      <figcaption>{title}</figcaption>
      <div ref={element} aria-hidden="true" />
    </figure>
  )
}
