// Prints the JavaScript heap of the table of jobs, in MiB, at the end of its input: memory.mjs URL COOKIE-NAME COOKIE-VALUE
import { end, open } from './browser.mjs'

const [url, name, value] = process.argv.slice(2)
const every = 5000
const page = await open('about:blank')
await page.context().addCookies([{ url, name, value }])
await page.goto(`${url}/#/jobs`)
const devtools = await page.context().newCDPSession(page)
await devtools.send('Performance.enable')
let most = 0
const measure = async () => {
  const { metrics } = await devtools.send('Performance.getMetrics')
  const used = metrics.find((metric) => metric.name === 'JSHeapUsedSize').value
  most = Math.max(most, used)
  return used
}
const timer = setInterval(() => void measure(), every)
for await (const _ of process.stdin);
clearInterval(timer)
await devtools.send('HeapProfiler.collectGarbage')
const left = await measure()
console.log(`${(left / 2 ** 20).toFixed(1)} ${(most / 2 ** 20).toFixed(1)}`)
await end()
