// Measures the table of jobs for the benchmarks, until its input ends.
// The first line of the input has the URL of the page, and the name and value of its cookie.
// Each line "open" opens the page once more, without a cache.
// It prints "ready", "first TIME" for the first view, "opened MILLISECONDS" from an opening to rows on the screen, "seen TIME RESTARTS JOB" for each change
// of a job on the screen, and "memory", followed by MiB: the JavaScript heap at the end, the most
// of it, and the proportional share of the page's process at the end, and the most of that.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { browser, end, open } from './browser.mjs'

const every = 5000
const page = await open('about:blank')
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
console.log('ready')
const [url, name, value] = (await lines.next()).value.split(' ')
await page.context().addCookies([{ url, name, value }])
await page.exposeFunction('print', (...words) => console.log(...words))
await page.addInitScript(() => {
  const seen = new Map()
  const look = () => {
    for (const row of document.querySelectorAll('tr[data-row]')) {
      const job = row.querySelector('.c-name').textContent
      const restarts = row.querySelector('.c-restarts').textContent
      if (seen.size === 0) window.print('first', Date.now())
      if (seen.get(job) !== restarts) window.print('seen', Date.now(), restarts || 0, job)
      seen.set(job, restarts)
    }
  }
  // What is drawn in a frame is on the screen after it.
  let waits = false
  new MutationObserver(() => {
    if (waits) return
    waits = true
    requestAnimationFrame(() => setTimeout(() => ((waits = false), look())))
  }).observe(document, { subtree: true, childList: true, characterData: true })
})
await page.goto(`${url}/#/jobs?sort=name`)
const devtools = await page.context().newCDPSession(page)
const system = await browser.newBrowserCDPSession()
await devtools.send('Performance.enable')

/** share returns the memory of the largest renderer: the page's. */
async function share() {
  const { processInfo } = await system.send('SystemInfo.getProcessInfo')
  const sizes = processInfo
    .filter(({ type }) => type === 'renderer')
    .map(({ id }) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${id}/smaps_rollup`, 'utf8'))[1]) * 1024)
  return Math.max(...sizes)
}
let [heap, mostHeap, memory, mostMemory] = [0, 0, 0, 0]
async function measure() {
  const { metrics } = await devtools.send('Performance.getMetrics')
  heap = metrics.find((metric) => metric.name === 'JSHeapUsedSize').value
  memory = await share()
  mostHeap = Math.max(mostHeap, heap)
  mostMemory = Math.max(mostMemory, memory)
}
const timer = setInterval(() => void measure(), every)

/** openAgain measures how long it takes from the request for a page until it shows rows, by the clock of the page. */
async function openAgain() {
  const other = await open('about:blank')
  await other.context().addCookies([{ url, name, value }])
  const shown = new Promise((resolve) => void other.exposeFunction('shown', resolve))
  await other.addInitScript(() => {
    const rows = new MutationObserver(() => {
      if (!document.querySelector('tr[data-row]')) return
      rows.disconnect()
      requestAnimationFrame(() => setTimeout(() => window.shown(performance.now())))
    })
    rows.observe(document, { subtree: true, childList: true })
  })
  // The browser is open before: a new window starts processes of its own.
  await other.evaluate(() => new Promise((idle) => setTimeout(() => requestIdleCallback(idle), 1000)))
  await other.goto(`${url}/#/jobs?sort=name`)
  console.log('opened', Math.round(await shown))
  await other.context().close()
}
while ((await lines.next()).value === 'open') await openAgain()
clearInterval(timer)
await devtools.send('HeapProfiler.collectGarbage')
await measure()
console.log('memory', ...[heap, mostHeap, memory, mostMemory].map((size) => (size / 2 ** 20).toFixed(1)))
await end()
