// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
	"mvdan.cc/sh/v3/syntax"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// check returns the error of a command of a page.
type check func(c *checker, page string, args []string) error

// checks are the checks of the programs that the docs call.
func checks() map[string]check {
	return map[string]check{
		"make":            (*checker).makeTarget,
		"helm":            (*checker).helm,
		"kubectl":         (*checker).kubectl,
		"di-orchestrator": (*checker).ours,
		"go":              (*checker).goTool,
		"velero":          (*checker).velero,
	}
}

// unchecked are the programs without a check, with the reason.
func unchecked() map[string]string {
	return map[string]string{
		"cat":               "writes the files that later commands name",
		"chmod":             "an install step of the reader's own machine",
		"cp":                "an install step of the reader's own machine",
		"cd":                "enters the clone",
		"git":               "clones this repository",
		"diff":              "compares what was built with what was downloaded",
		"ctr":               "needs containerd",
		"skopeo":            "needs a registry",
		"hack/assets":       "the targets of make that test with an API server call it",
		"docker":            "needs a container engine",
		"eval":              "its input is checked separately",
		"grep":              "reads the output of the command before it",
		"kind":              "needs a container engine",
		"kubeconform":       "the tests of hack/release validate the examples against the same schemas",
		"jq":                "reads the output of the command before it",
		"sleep":             "only waits",
		"source":            "its input is checked separately",
		"curl":              "a test of the programs reads the history with the same request",
		"python3":           "the end-to-end tests run the examples in Python, and others the library's",
		"bin/cluster":       "the end-to-end tests start the local cluster with it",
		"hack/push-release": "pushes to a registry",
		"Out-String":        "PowerShell's own",
		"Invoke-Expression": "PowerShell's own",
	}
}

func TestEveryCommandOfTheDocsIsOneThatThereIs(t *testing.T) {
	c := newChecker(t)
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			for _, block := range blocksOf(t, page) {
				commands, err := commandsOf(block)
				if err != nil {
					t.Errorf("%s:%d: %v", page, block.Line, err)
				}
				for _, args := range commands {
					if err := c.command(page, args); err != nil {
						t.Errorf("%s:%d: %s: %v", page, block.Line, strings.Join(args, " "), err)
					}
				}
			}
		})
	}
	for program := range unchecked() {
		if !c.met[program] {
			t.Errorf("no page calls %s: remove it from the list", program)
		}
	}
	for program := range checks() {
		if !c.met[program] {
			t.Errorf("no page calls %s: are the pages read at all?", program)
		}
	}
}

func TestAWrongCommandIsFound(t *testing.T) {
	c := newChecker(t)
	for command, want := range map[string]string{
		"make nothing": "no target nothing",
		"helm install x charts/di-orchestrator --set servr.replicas=3": "servr",
		"helm upgrade x charts/di-orchestrator --sets a=b":             "no flag --sets",
		"helm instal x charts/di-orchestrator":                         "no command instal",
		"kubectl got pods":                                             "no command got",
		"kubectl apply -f examples/nothing.yaml":                       "nothing.yaml",
		"kubectl apply -k config/nothing":                              "config/nothing",
		"go run ./cmd/nothing":                                         "cmd/nothing",
		"di-orchestrator operate":                                      "no command operate",
		"di-orchestrator server --identify=off":                        "no flag --identify",
		"velero restore create --status-of x":                          "no flag --status-of",
		"rm -rf /":                                                     "rm",
		"kubectl get pods && make nothing":                             "no target nothing",
		"kubectl -n rl di add collector cartpole":                      "flags before di",
		"kubectl --context=here di list":                               "flags before di",
		`kubectl -n di-system get pods | while read -r x; do make "$(make nothing)"; done`: "no target nothing",
	} {
		commands, err := commandsOf(&Block{Language: "sh", Text: command})
		expect.NoError(t, err)
		var all []error
		for _, args := range commands {
			all = append(all, c.command("README.md", args))
		}
		if err := errors.Join(all...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", command, err, want)
		}
	}
}

func TestACommandIsFoundInEveryKindOfBlock(t *testing.T) {
	for text, want := range map[string]string{
		"kubectl got pods\n":                         "kubectl got pods",
		"# A comment.\nkubectl got pods\n":           "kubectl got pods",
		"KUBECONFIG=a kubectl got pods\n":            "kubectl got pods",
		"source <(kubectl di completion bash)\n":     "kubectl di completion bash",
		"$ kubectl got pods\nNAME  READY\n":          "kubectl got pods",
		"NAME   PHASE\ngpus   Failed, see kubectl\n": "",
	} {
		commands, err := commandsOf(&Block{Text: text})
		expect.NoError(t, err)
		var all []string
		for _, args := range commands {
			all = append(all, strings.Join(args, " "))
		}
		if !slices.Contains(append(all, ""), want) || (want == "" && len(all) > 0) {
			t.Errorf("%q: got %q, want %q", text, all, want)
		}
	}
}

// pages are the pages that users read, relative to the root.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "charts/*/README.md", "examples/*/README.md", "hack/*/README.md"} {
		matched, err := filepath.Glob(filepath.Join(testkit.Root(), pattern))
		expect.NoError(t, err)
		for _, path := range matched {
			page, err := filepath.Rel(testkit.Root(), path)
			expect.NoError(t, err)
			found = append(found, page)
		}
	}
	return found
}

func blocksOf(t *testing.T, page string) []*Block {
	t.Helper()
	blocks, err := Blocks(testkit.Root(), page)
	expect.NoError(t, err)
	return blocks
}

// script returns the shell commands of a block: all of it, or the lines with a prompt
// of a console. A block without a language, such as an indented one, is shell if one of
// its lines calls a program that the docs call.
func script(b *Block) string {
	switch b.Language {
	case "sh", "bash", "shell":
		return b.Text
	case "console":
		return prompted(b.Text)
	case "":
		if strings.HasPrefix(b.Text, "$ ") {
			return prompted(b.Text)
		}
		for line := range strings.Lines(b.Text) {
			if callsKnown(line) {
				return b.Text
			}
		}
	}
	return ""
}

func prompted(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if command, isCommand := strings.CutPrefix(line, "$ "); isCommand {
			lines = append(lines, command)
		}
	}
	return strings.Join(lines, "")
}

// callsKnown reports whether a line begins with a program that the docs call, after variables that are set for it.
func callsKnown(line string) bool {
	assignment := regexp.MustCompile(`^[A-Z_]+=`)
	for _, word := range strings.Fields(line) {
		if assignment.MatchString(word) {
			continue
		}
		_, isChecked := checks()[word]
		_, isUnchecked := unchecked()[word]
		return isChecked || isUnchecked
	}
	return false
}

// commands returns the simple commands of a block, with what the shell would
// fill in left as it is written.
func commandsOf(b *Block) ([][]string, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script(b)), b.Page)
	if err != nil {
		return nil, fmt.Errorf("this is not shell: %w", err)
	}
	var found [][]string
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, isCall := node.(*syntax.CallExpr); isCall && len(call.Args) > 0 {
			args := make([]string, 0, len(call.Args))
			for _, word := range call.Args {
				args = append(args, literal(word))
			}
			found = append(found, args)
		}
		return true
	})
	return found, nil
}

// literal returns a word without its quotes.
func literal(word *syntax.Word) string {
	var out strings.Builder
	write := func(part syntax.Node) {
		switch part := part.(type) {
		case *syntax.Lit:
			out.WriteString(part.Value)
		case *syntax.SglQuoted:
			out.WriteString(part.Value)
		default:
			_ = syntax.NewPrinter().Print(&out, part)
		}
	}
	for _, part := range word.Parts {
		if quoted, isQuoted := part.(*syntax.DblQuoted); isQuoted {
			for _, inner := range quoted.Parts {
				write(inner)
			}
			continue
		}
		write(part)
	}
	return out.String()
}

// checker checks commands.
type checker struct {
	t       *testing.T
	targets []string
	// program is our own, and help has the help texts of programs' commands.
	program string
	help    map[string]string
	// met are the called programs.
	met map[string]bool
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	built, err := program.Build(t.Context(), t.TempDir())
	expect.NoError(t, err)
	c := &checker{t: t, help: map[string]string{}, met: map[string]bool{}, program: built}
	makefile, err := os.ReadFile(filepath.Join(testkit.Root(), "Makefile"))
	expect.NoError(t, err)
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllSubmatch(makefile, -1) {
		c.targets = append(c.targets, string(found[1]))
	}
	return c
}

func (c *checker) command(page string, args []string) error {
	c.met[args[0]] = true
	if check, isChecked := checks()[args[0]]; isChecked {
		return check(c, page, args[1:])
	}
	if _, isUnchecked := unchecked()[args[0]]; isUnchecked {
		return nil
	}
	return fmt.Errorf("program %s has no check: add one, or the reason for none", args[0])
}

func (c *checker) makeTarget(_ string, args []string) error {
	var all []error
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") && !slices.Contains(c.targets, arg) {
			all = append(all, fmt.Errorf("the Makefile has no target %s", arg))
		}
	}
	return errors.Join(all...)
}

// helm checks a command against helm's help, and its values against the chart's schema.
func (c *checker) helm(_ string, args []string) error {
	helm := os.Getenv("HELM")
	if helm == "" {
		return errors.New("HELM is not set: run the tests by make test, or set it to the program")
	}
	if err := c.flags(helm, args); err != nil {
		return err
	}
	chart := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "charts/") })
	if chart < 0 {
		return nil
	}
	template := []string{"template", "x", args[chart]}
	for i, arg := range args {
		if strings.HasPrefix(arg, "--set") && i+1 < len(args) {
			template = append(template, arg, args[i+1])
		}
	}
	return c.run(helm, template...)
}

// velero checks the flags of a restore against a list, because the program is not installed.
func (c *checker) velero(_ string, args []string) error {
	known := []string{"--include-namespaces", "--from-backup", "--selector", "--status-include-resources"}
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(arg, "--") && !slices.Contains(known, name) {
			return fmt.Errorf("velero is known to have no flag %s", name)
		}
	}
	return nil
}

func (c *checker) ours(_ string, args []string) error {
	return c.flags(c.program, args)
}

// flags checks the flags of a command against the help of the program.
func (c *checker) flags(program string, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	command := args[0]
	help, known := c.help[program+command]
	if !known {
		output, err := exec.CommandContext(c.t.Context(), program, command, "--help").CombinedOutput()
		if err != nil || !strings.Contains(string(output), filepath.Base(name(program))+" "+command) {
			return fmt.Errorf("%s has no command %s", name(program), command)
		}
		help = string(output)
		c.help[program+command] = help
	}
	for _, arg := range args[1:] {
		flag, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(flag, "-") && !regexp.MustCompile(`(?m)(^|[\s,])`+regexp.QuoteMeta(flag)+`([\s,=]|$)`).MatchString(help) {
			return fmt.Errorf("%s %s has no flag %s", name(program), command, flag)
		}
	}
	return nil
}

// name returns the name of a program for users, without the version of its file here.
func name(program string) string {
	return strings.TrimRight(filepath.Base(program), "34")
}

func (c *checker) run(program string, args ...string) error {
	command := exec.CommandContext(c.t.Context(), program, args...)
	command.Dir = testkit.Root()
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// verbs are kubectl's commands.
func verbs() []string {
	return []string{
		"annotate", "api-resources", "apply", "auth", "autoscale", "config", "cordon", "cp", "create", "debug", "delete", "describe",
		"diff", "drain", "edit", "events", "exec", "explain", "expose", "get", "kustomize", "label", "logs", "patch", "port-forward",
		"replace", "rollout", "run", "scale", "set", "taint", "top", "uncordon", "version", "wait",
	}
}

// kubectl checks the verb, and the named files and folders. The plugin's own tests
// check kubectl di.
func (c *checker) kubectl(page string, args []string) error {
	verb := positional(args)
	if verb == "di" || verb == "krew" {
		if args[0] != verb {
			return fmt.Errorf("kubectl finds no plugin with flags before %s: put them behind it", verb)
		}
		return nil
	}
	if !slices.Contains(verbs(), verb) {
		return fmt.Errorf("kubectl has no command %s", verb)
	}
	var all []error
	for i, arg := range args {
		if i+1 == len(args) || !slices.Contains([]string{"-f", "-k", "--filename", "--kustomize"}, arg) {
			continue
		}
		if arg == "-f" && (verb == "logs" || verb == "exec") {
			continue
		}
		all = append(all, c.file(page, args[i+1], strings.Contains(arg, "k")))
	}
	return errors.Join(all...)
}

// positional returns the first argument that is neither a flag nor its value.
func positional(args []string) string {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case slices.Contains([]string{"-n", "--namespace", "--context", "--kubeconfig"}, arg):
			i++
		case !strings.HasPrefix(arg, "-"):
			return arg
		}
	}
	return ""
}

// file checks that a file of manifests, or a kustomization, exists in the checkout
// or is written by the page itself.
func (c *checker) file(page, path string, kustomization bool) error {
	if path == "-" || strings.HasPrefix(path, "http") || strings.ToUpper(path) == path {
		return nil
	}
	if kustomization {
		_, err := os.Stat(filepath.Join(testkit.Root(), path, "kustomization.yaml"))
		return err
	}
	for _, block := range blocksOf(c.t, page) {
		if strings.Contains(block.Text, "> "+path) {
			return nil
		}
	}
	for _, folder := range []string{"", filepath.Dir(page)} {
		if content, err := os.ReadFile(filepath.Join(testkit.Root(), folder, path)); err == nil {
			return decodes(content)
		}
	}
	return fmt.Errorf("there is no file %s", path)
}

func decodes(content []byte) error {
	_, err := decode(content)
	return err
}

// decode returns the documents of YAML.
func decode(content []byte) ([]map[string]any, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(content)), 4096)
	var objects []map[string]any
	for {
		var object map[string]any
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		}
		objects = append(objects, object)
	}
}

// goTool checks the packages that go builds, runs or tests.
func (c *checker) goTool(_ string, args []string) error {
	if len(args) == 0 || !slices.Contains([]string{"build", "run", "test", "vet"}, args[0]) {
		return nil
	}
	folder := testkit.Root()
	for i, arg := range args[1:] {
		if arg == "-C" && i+2 < len(args) {
			folder = filepath.Join(folder, args[i+2])
		}
	}
	for _, arg := range args[1:] {
		if arg != "." && !strings.HasPrefix(arg, "./") {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, strings.TrimSuffix(arg, "/..."))); err != nil {
			return err
		}
		if arg == "." || args[0] == "run" {
			break
		}
	}
	return nil
}
