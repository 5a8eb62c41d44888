// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
)

// messages is testdata/messages.yaml, which documents its fields.
type messages struct {
	Templates []any           `json:"templates"`
	Rules     []messageOfRule `json:"rules"`
}

type messageOfRule struct {
	Rule string   `json:"rule"`
	By   string   `json:"by"`
	V1   *refused `json:"v1alpha1"`
	V2   *refused `json:"v2alpha1"`
}

type refused struct {
	By           string         `json:"by"`
	Name         string         `json:"name"`
	GenerateName string         `json:"generateName"`
	Old          map[string]any `json:"old"`
	Spec         map[string]any `json:"spec"`
	Error        string         `json:"error"`
	Unfinished   bool           `json:"unfinished"`
}

// ratchets is testdata/ratchets.yaml.
type ratchets struct {
	Templates []any     `json:"templates"`
	Stored    []ratchet `json:"stored"`
}

type ratchet struct {
	Rule    string         `json:"rule"`
	Version string         `json:"version"`
	Name    string         `json:"name"`
	Spec    map[string]any `json:"spec"`
	Worse   []any          `json:"worse"`
	Error   string         `json:"error"`
}

const (
	byWebhook = "webhook"
	bySchema  = "schema"

	// unfinished is the API server's suffix if it skipped the rules that need a valid structure.
	unfinished = ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]"
)

// readTable reads a file of testdata, and rejects fields that the type does not have.
func readTable[T any](file string) (table T, err error) {
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		return table, err
	}
	return table, yaml.UnmarshalStrict(raw, &table)
}

// cases returns the objects that break the rule, by version.
func (m messageOfRule) cases() map[string]*refused {
	cases := map[string]*refused{}
	for version, broken := range map[string]*refused{"v1alpha1": m.V1, "v2alpha1": m.V2} {
		if broken == nil {
			continue
		}
		if broken.By == "" {
			broken.By = m.By
		}
		cases[version] = broken
	}
	return cases
}

var _ = Describe("What is refused", func() {
	table, err := readTable[messages]("messages.yaml")
	It("is in a table", func() {
		Expect(err).NotTo(HaveOccurred())
		Expect(table.Rules).NotTo(BeEmpty())
	})
	for i, rule := range table.Rules {
		for version, broken := range rule.cases() {
			It(fmt.Sprintf("names its path, value and remedy: %s (%d, %s)", rule.Rule, i, version), func(ctx SpecContext) {
				err := breakRule(ctx, version, broken)
				before, message := "DIJob.diengine.opendilab.org ", broken.Error
				if broken.By == byWebhook {
					before = fmt.Sprintf(`admission webhook "validate-%s.diengine.opendilab.org" denied the request: %s`, version, before)
				}
				if broken.Unfinished {
					message = "[" + message + unfinished
				}
				Expect(err).To(HaveOccurred())
				Expect(withoutValues(err.Error())).To(And(HavePrefix(before), HaveSuffix(withoutValues(`" is invalid: `+message))))
			})
		}
	}
})

// withoutValues removes the values from a message of an earlier API server than that of the other tests: such as that of 1.30
// names the type of a value instead.
func withoutValues(message string) string {
	GinkgoHelper()
	if minor() >= 36 {
		return message
	}
	return regexp.MustCompile(`(Invalid value: )(("([^"\\]|\\.)*"|null|true|false|-?[0-9.]+): )?`).ReplaceAllString(message, "$1")
}

// breakRule writes an object that the rule refuses, and returns the error.
func breakRule(ctx context.Context, version string, broken *refused) error {
	GinkgoHelper()
	namespace := specs.Namespace(ctx, c)
	name := broken.Name
	if name == "" && broken.GenerateName == "" {
		name = "j"
	}
	written := specs.Job(version, namespace, name, "{}")
	written.SetGenerateName(broken.GenerateName)
	if broken.Spec != nil {
		written.Object["spec"] = broken.Spec
	}
	if broken.Old == nil {
		return c.Create(ctx, written)
	}
	old := specs.Job("v2alpha1", namespace, name, "{}")
	old.Object["spec"] = broken.Old
	Expect(c.Create(ctx, old)).To(Succeed())
	written.SetResourceVersion(old.GetResourceVersion())
	return c.Update(ctx, written)
}

var _ = Describe("A job that broke a rule before there was one", Ordered, func() {
	table, err := readTable[ratchets]("ratchets.yaml")
	var namespace string

	BeforeAll(func(ctx SpecContext) {
		Expect(err).NotTo(HaveOccurred())
		namespace = specs.Namespace(ctx, c)
		label(ctx, namespace, `"true"`)
		spare(ctx, `{"matchExpressions":[{"key":"unguarded","operator":"DoesNotExist"}]}`)
		DeferCleanup(func(ctx SpecContext) { spare(ctx, `{}`) })
		probe := func(g Gomega) error {
			return c.Create(ctx, specs.Job("v2alpha1", namespace, "probe", "spec: {}"), client.DryRunAll)
		}
		Eventually(probe).WithContext(ctx).Should(Succeed(), "unguarded")
		for i, stored := range table.Stored {
			object := specs.Job("v2alpha1", namespace, stored.name(i), "{}")
			object.Object["spec"] = stored.Spec
			Expect(c.Create(ctx, object)).To(Succeed(), stored.Rule)
		}
		label(ctx, namespace, "null")
		Eventually(probe).WithContext(ctx).Should(MatchError(ContainSubstring("denied")), "guarded again")
	})

	for i, stored := range table.Stored {
		It(fmt.Sprintf("may be changed elsewhere: %s (%d, %s)", stored.Rule, i, stored.Version), func(ctx SpecContext) {
			object := specs.GetJob(ctx, c, stored.Version, namespace, stored.name(i))
			if stored.Worse != nil {
				worse := specs.Must(json.Marshal(stored.Worse))
				Expect(c.Patch(ctx, object.DeepCopy(), client.RawPatch(types.JSONPatchType, worse))).To(
					MatchError(HaveSuffix(`" is invalid: ` + stored.Error)))
			}
			elsewhere := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"group":"elsewhere"}}`))
			Expect(c.Patch(ctx, object, elsewhere)).To(Succeed())
			Expect(specs.GetJob(ctx, c, "v2alpha1", namespace, stored.name(i)).Object["spec"]).To(HaveKeyWithValue("group", "elsewhere"))
		})
	}

	It("is tested for every rule of the webhook that it may break", func() {
		// These rules are new in this release or concern changes, so that no stored job breaks
		// them.
		exempt := []string{
			"v1alpha1 shows a worker-led job's spec and does not change it", "extended holds fields of v2alpha1",
			"Only the autoscaler changes a number that a ratio rule sets",
			"A job of MPI has a launcher", "A job of MPI has one launcher", "A job of MPI has workers", "The launcher of MPI is not resized",
			"The number of workers of MPI that come and go is bounded", "Volumes of MPI jobs have other names than the operator's",
			"The hostfile of an MPI job fits into a ConfigMap",
		}
		var tested, held []string
		for _, stored := range table.Stored {
			tested = append(tested, stored.Rule)
		}
		rules := specs.Must(readTable[messages]("messages.yaml"))
		for _, rule := range rules.Rules {
			if rule.By == byWebhook && !slices.Contains(exempt, rule.Rule) {
				held = append(held, rule.Rule)
			}
		}
		slices.Sort(held)
		slices.Sort(tested)
		Expect(slices.Compact(tested)).To(Equal(slices.Compact(held)))
	})
})

func (r ratchet) name(i int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("stored-%d", i)
}

// label sets or, with null, removes the label by which the webhooks skip a namespace.
func label(ctx context.Context, namespace, value string) {
	GinkgoHelper()
	object := &corev1.Namespace{}
	object.Name = namespace
	Expect(c.Patch(ctx, object, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"unguarded":%s}}}`, value)))).To(Succeed())
}

// spare sets the namespaceSelector of all admission webhooks.
func spare(ctx context.Context, selector string) {
	GinkgoHelper()
	for name, kind := range map[string]string{
		webhook.MutatingConfiguration: "MutatingWebhookConfiguration", webhook.ValidatingConfiguration: "ValidatingWebhookConfiguration",
	} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		Expect(c.Get(ctx, client.ObjectKey{Name: name}, object)).To(Succeed())
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		Expect(err).NotTo(HaveOccurred())
		patch := make([]string, len(webhooks))
		for i := range webhooks {
			patch[i] = fmt.Sprintf(`{"op":"replace","path":"/webhooks/%d/namespaceSelector","value":%s}`, i, selector)
		}
		Expect(c.Patch(ctx, object, jsonPatch("["+strings.Join(patch, ",")+"]"))).To(Succeed())
	}
}

func TestTheTableHasEveryMessageOfTheCode(t *testing.T) {
	t.Parallel()
	all := tableErrors(t, byWebhook)
	for _, file := range []string{"autoscale.go", "rules.go", "validation.go"} {
		file = filepath.Join(testkit.Root(), "webhook", "validation", file)
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, nil, 0)
		expect.NoError(t, err)
		ast.Inspect(parsed, func(node ast.Node) bool {
			if call, isCall := node.(*ast.CallExpr); isCall {
				if pattern := messageOf(call); pattern != nil && !slices.ContainsFunc(all, pattern.MatchString) {
					t.Errorf("%s: no message of the table matches %s", files.Position(call.Pos()), pattern)
				}
			}
			return true
		})
	}
}

// messageOf returns a pattern of the message of a constructed error.
func messageOf(call *ast.CallExpr) *regexp.Regexp {
	selector, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isSelector || fmt.Sprint(selector.X) != "field" {
		return nil
	}
	kind := map[string]string{
		"Invalid": "Invalid value", "Required": "Required value", "Forbidden": "Forbidden",
		"NotSupported": "Unsupported value", "Duplicate": "Duplicate value",
	}[selector.Sel.Name]
	if kind == "" {
		return nil
	}
	return regexp.MustCompile(literals(call.Args[0]) + ".*: " + kind + ".*" + literals(call.Args[len(call.Args)-1]))
}

// literals returns a pattern of the constant parts of an expression.
func literals(expression ast.Expr) string {
	var parts []string
	ast.Inspect(expression, func(node ast.Node) bool {
		if call, isCall := node.(*ast.CallExpr); isCall {
			if selector, is := call.Fun.(*ast.SelectorExpr); is && selector.Sel.Name == "Sprintf" {
				// The arguments of a format may appear in another order.
				parts = append(parts, literals(call.Args[0]))
				return false
			}
		}
		if literal, isLiteral := node.(*ast.BasicLit); isLiteral && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				verbs := regexp.MustCompile(`%[dsq]`)
				parts = append(parts, verbs.ReplaceAllString(regexp.QuoteMeta(text), ".*"))
			}
		}
		return true
	})
	return strings.Join(parts, ".*")
}

func TestTheTableHasEveryMessageOfTheSchema(t *testing.T) {
	t.Parallel()
	crd := readCRD(t, "dijobs")
	all := tableErrors(t, bySchema)
	for _, version := range crd.Spec.Versions {
		everyRule("", version.Schema.OpenAPIV3Schema, func(path string, rule apiextensionsv1.ValidationRule) {
			says := rule.Message
			if literal := regexp.MustCompile(`^'([^'%]+)`).FindStringSubmatch(rule.MessageExpression); literal != nil {
				says = literal[1]
			}
			at := regexp.QuoteMeta(strings.TrimPrefix(path+rule.FieldPath, "."))
			pattern := regexp.MustCompile("^" + strings.ReplaceAll(at, `\[\]`, `\[\d+\]`) + ": .*" + regexp.QuoteMeta(says))
			if says == "" || !slices.ContainsFunc(all, pattern.MatchString) {
				t.Errorf("no message of the table matches %s", pattern)
			}
		})
	}
}

// readCRD returns the CRD of a resource.
func readCRD(t *testing.T, resource string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "crd", "bases", "diengine.opendilab.org_"+resource+".yaml"))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = yaml.Unmarshal(raw, crd)
	}
	expect.NoError(t, err)
	return crd
}

// everyRule calls back with each rule of a schema and its path.
func everyRule(path string, props *apiextensionsv1.JSONSchemaProps, found func(string, apiextensionsv1.ValidationRule)) {
	for _, rule := range props.XValidations {
		found(path, rule)
	}
	for name := range props.Properties {
		property := props.Properties[name]
		everyRule(path+"."+name, &property, found)
	}
	if props.Items != nil && props.Items.Schema != nil {
		everyRule(path+"[]", props.Items.Schema, found)
	}
}

// tableErrors returns the messages of the webhook or of the schema.
func tableErrors(t *testing.T, by string) []string {
	t.Helper()
	table, err := readTable[messages]("messages.yaml")
	expect.NoError(t, err)
	var errs []string
	for _, rule := range table.Rules {
		for _, broken := range rule.cases() {
			if broken.By == by {
				errs = append(errs, broken.Error)
			}
		}
	}
	return errs
}

func TestEveryRuleIsDocumentedWithItsMessage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "validation.md"))
	expect.NoError(t, err)
	table, err := readTable[messages]("messages.yaml")
	expect.NoError(t, err)
	for _, rule := range table.Rules {
		example := rule.V2
		if example == nil {
			example = rule.V1
		}
		row := fmt.Sprintf(" | %s | `%s` |", rule.By, example.Error)
		if !strings.Contains(string(page), "| "+rule.Rule+" |") || !strings.Contains(string(page), row) {
			t.Errorf("docs/validation.md has no row of %q that ends in%s", rule.Rule, row)
		}
	}
}
