// Compares the texts of the page with its code and with the server's: it reads files, as no code of the page can.
import { readFileSync, readdirSync } from 'node:fs'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'
import { translator } from './say'
import { sentences } from './sentences.zh'

const server = '../cmd/kubectl-di/internal'

/** literals returns the texts in Go code that match a pattern. */
function literals(file, pattern) {
  const code = readFileSync(`${server}/${file}`, 'utf8').replace(/\/\/.*/g, '')
  return [...code.matchAll(/"((?:[^"\\\n]|\\.)*)"/g)].map((found) => found[1] ?? '').filter((text) => pattern.test(text))
}

describe('the Chinese page', () => {
  const say = translator(sentences, { Pending: '等待中', Running: '运行中' })
  it('says what the server says, with its values', () => {
    expect(say('The replicas of task collector change from 3 to 4.')).toBe('任务 collector 的副本数从 3 变为 4。')
    expect(say('The phase changed from Pending to Running.')).toBe('阶段从等待中变为运行中。')
    expect(say('Pod a failed with exit code 1: x: y')).toBe('Pod a 失败，退出码 1：x: y')
    expect(say('Pod a failed: x')).toBe('Pod a 失败：x')
  })
  it('leaves a text that is not known as it is', () => {
    expect(say('pong-0 cannot pull image di')).toBe('pong-0 cannot pull image di')
  })
  it('knows every sentence and title in the code of the server', () => {
    const views = readdirSync(`${server}/ui/pages`).filter((file) => !file.endsWith('_test.go'))
    const files = [...views.map((file) => `ui/pages/${file}`), 'ui/past/job.go', 'ui/past/curves.go', 'ui/history.go', 'jobview/view.go', 'jobview/waiting.go', 'jobview/remedy.go', 'ui/store/moments.go', 'ui/job.go', 'ui/cluster.go', 'ui/create.go']
    const said = files.flatMap((file) => literals(file, /^([A-Z].* .*(\.|%[sv])|%d .*\.)$/))
    said.push(...literals('ui/command.go', /^You may/))
    said.push(...['page', 'allocation', 'autoscaling'].flatMap((file) => literals(`jobs/${file}.go`, /^[A-Z][A-Za-z ]*:$/)).map((title) => title.slice(0, -1)))
    // The titles and columns of what is recorded. The page writes columns with one capital letter.
    const recorded = literals('history/view/page.go', /^[A-Z][A-Za-z ]*:?$/).map((text) => text.replace(/:$/, '').replace(/^(.)([A-Z ]*)$/, (_, first, rest) => first + rest.toLowerCase()))
    said.push(...recorded.filter((text) => !['Completed', 'Error', 'Uid'].includes(text)))
    expect(said.length).toBeGreaterThan(80)
    expect(said.filter((text) => !(text in sentences))).toEqual([])
  })
})

describe('the components', () => {
  it('have no text of their own, which would not be translated', () => {
    const found = []
    for (const file of readdirSync('src').filter((name) => name.endsWith('.tsx'))) {
      const visit = (node) => {
        const isLabel = ts.isJsxAttribute(node) && /^(title|aria-label|placeholder|alt)$/.test(node.name.getText()) && node.initializer && ts.isStringLiteral(node.initializer)
        const text = ts.isJsxText(node) ? node.text : isLabel ? node.initializer.getText() : ''
        if (/\p{L}{2}/u.test(text)) found.push(`${file}: ${text.trim()}`)
        ts.forEachChild(node, visit)
      }
      visit(ts.createSourceFile(file, readFileSync(`src/${file}`, 'utf8'), ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX))
    }
    expect(found).toEqual(['main.tsx: English', 'main.tsx: 中文'])
  }, 60_000)
})
