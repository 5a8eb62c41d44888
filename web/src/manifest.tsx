// The YAML of a job in both versions, and their difference.
import { useEffect, useState } from 'preact/hooks'
import { get, jobPath, type Difference, type Manifest } from './api'
import { useApp } from './app'
import { Skeleton } from './skeleton'

const versions = ['v2alpha1', 'v1alpha1', 'difference'] as const

export function ManifestTab({ namespace, name }: { namespace: string; name: string }) {
  const { t } = useApp()
  const [version, setVersion] = useState<(typeof versions)[number]>('v2alpha1')
  const [text, setText] = useState<Manifest | Difference>()
  const [error, setError] = useState('')
  const [copied, setCopied] = useState(false)
  const path = jobPath(namespace, name)
  useEffect(() => {
    const abort = new AbortController()
    setText(undefined)
    setError('')
    setCopied(false)
    get<Manifest | Difference>(version === 'difference' ? `${path}/difference` : `${path}/manifest?version=${version}`, abort.signal)
      .then(setText)
      .catch((failed: Error) => abort.signal.aborted || setError(failed.message))
    return () => abort.abort()
  }, [path, version])
  const copy = (yaml: string) => void navigator.clipboard.writeText(yaml).then(() => setCopied(true))
  return (
    <section class="card" aria-label={t.manifest}>
      <div class="filters">
        <div class="chips" role="group" aria-label={t.version}>
          {versions.map((v) => (
            <button type="button" class="chip" aria-pressed={v === version} onClick={() => setVersion(v)}>
              {v === 'difference' ? t.difference : v}
            </button>
          ))}
        </div>
        {text && 'yaml' in text && (
          <button type="button" onClick={() => copy(text.yaml)}>
            {copied ? t.copied : t.copy}
          </button>
        )}
      </div>
      {error && <p class="banner warning">{error}</p>}
      {!text && !error && <Skeleton lines={12} />}
      {text && 'yaml' in text && <pre tabIndex={0}>{text.yaml}</pre>}
      {text && 'lines' in text && (
        <pre tabIndex={0} class="diff">
          {text.lines.map((line) => (
            <div class={line.kind}>
              {{ same: '  ', removed: '- ', added: '+ ' }[line.kind]}
              {line.text}
            </div>
          ))}
        </pre>
      )}
    </section>
  )
}
