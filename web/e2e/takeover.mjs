// Looks at a takeover that is stalled: takeover.mjs URL NAMESPACE
import assert from 'node:assert/strict'
import { both, end, go, isAccessible, isInView, open, picture, step } from './browser.mjs'

const [address, namespace] = process.argv.slice(2)
const page = await open(address)

await step('the cluster shows a takeover, and says once what it waits for', async () => {
  await go(page, '#/cluster', 'Stalled takeover of an earlier release')
  const shown = page.getByRole('region', { name: 'Stalled takeover of an earlier release' })
  await isInView(shown.getByText('AwaitOperator: no progress for 2m0s; waits for the end of pods di-operator-1-2'))
  assert.equal(await page.getByText('waits for the end of pods di-operator-1-2').count(), 1)
  for (const wait of [
    'Deployment di-operator of the earlier release still has replicas: 0, pods: 1.',
    `Jobs with pods that are not adopted yet: 2 of 3: ${namespace}/v0, ${namespace}/v1`,
  ]) await shown.getByRole('listitem').filter({ hasText: wait }).waitFor()
  await both(page, async (mode) => {
    await picture(page, `web-takeover-${mode}`)
    await isAccessible(page)
  })
})
await step('the takeover is shown in Chinese', async () => {
  await page.getByLabel('Language').selectOption('zh')
  await page.getByRole('region', { name: '接管早期版本：停滞' }).getByText('早期版本的 Deployment di-operator 仍有 0 个副本、1 个 Pod。').waitFor()
  await isAccessible(page)
})
await end()
