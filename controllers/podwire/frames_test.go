// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podwire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"opendilab.org/di-orchestrator/controllers/podwire"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestADecisionSeesTheSamePodsWithAndWithoutTheFilter(t *testing.T) {
	t.Parallel()
	pods := randomPods(200)
	var stream []byte
	for _, pod := range pods {
		stream = append(stream, frame(t, watch.Modified, pod)...)
	}
	filtered, err := io.ReadAll(podwire.NewReader(iotest.OneByteReader(bytes.NewReader(stream))))
	expect.NoError(t, err)
	if dropped := len(stream) - len(filtered); dropped < len(stream)/2 {
		t.Errorf("the filter drops %d of %d bytes, want more than half", dropped, len(stream))
	}
	read := events(t, filtered)
	if len(read) != len(pods) {
		t.Fatalf("%d events became %d", len(pods), len(read))
	}
	for i := range read {
		wantSame(t, pods[i], read[i])
	}
}

// wantSame fails unless an event has the same pod as far as podstate.Trim keeps it.
func wantSame(t *testing.T, want *corev1.Pod, got watch.Event) {
	t.Helper()
	read, is := got.Object.(*corev1.Pod)
	if !is || got.Type != watch.Modified {
		t.Fatalf("the event is %s of %T", got.Type, got.Object)
	}
	want = want.DeepCopy()
	want.ManagedFields = nil
	podstate.Trim(want)
	podstate.Trim(read)
	// Some fields are empty in one and missing in the other.
	if difference := cmp.Diff(decoded(t, want), decoded(t, read)); difference != "" {
		t.Fatalf("pod %s differs (-without +with the filter):\n%s", want.Name, difference)
	}
}

func TestEventsWithoutPodsAndLongOnesPassAsTheyAre(t *testing.T) {
	t.Parallel()
	long := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "long", Annotations: map[string]string{"text": strings.Repeat("x", 100<<10)}}}
	garbled := frame(t, watch.Added, &corev1.Pod{Spec: corev1.PodSpec{Hostname: "host"}})
	garbled[len(garbled)-3] = 0xff
	var stream []byte
	for _, each := range [][]byte{
		frame(t, watch.Error, &metav1.Status{Code: 410, Message: "too old"}),
		frame(t, watch.Added, long),
		frame(t, watch.Added, &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}}),
		garbled,
		{0, 0, 0, 0},
		{0, 0, 0, 2, 0xff, 0xff},
	} {
		stream = append(stream, each...)
	}
	got, err := io.ReadAll(podwire.NewReader(iotest.HalfReader(bytes.NewReader(stream))))
	if err != nil || !bytes.Equal(got, stream) {
		t.Errorf("read %d bytes (%v), want the same %d", len(got), err, len(stream))
	}
}

func TestABookmarkKeepsItsVersionAndAnnotations(t *testing.T) {
	t.Parallel()
	bookmark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "12", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	filtered, err := io.ReadAll(podwire.NewReader(bytes.NewReader(frame(t, watch.Bookmark, bookmark))))
	expect.NoError(t, err)
	got := events(t, filtered)
	if len(got) != 1 || got[0].Type != watch.Bookmark {
		t.Fatalf("read %v", got)
	}
	if read, is := got[0].Object.(*corev1.Pod); !is || read.ResourceVersion != "12" || read.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the bookmark is %v", got[0].Object)
	}
}

func TestAStreamThatEndsWithinAnEventIsAnError(t *testing.T) {
	t.Parallel()
	whole := frame(t, watch.Added, &corev1.Pod{})
	for _, length := range []int{2, 4, len(whole) - 1} {
		if _, err := io.ReadAll(podwire.NewReader(bytes.NewReader(whole[:length]))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d of %d bytes the error is %v", length, len(whole), err)
		}
	}
}

func FuzzAnyStreamIsReadAndNeverGrows(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0xff, 0xff})
	for _, pod := range randomPods(3) {
		f.Add(frame(f, watch.Added, pod))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		filtered, err := io.ReadAll(podwire.NewReader(bytes.NewReader(stream)))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if len(filtered) > len(stream) {
			t.Errorf("%d bytes became %d", len(stream), len(filtered))
		}
	})
}

func FuzzAnyPodThatDecodesStaysTheSameForDecisions(f *testing.F) {
	for _, pod := range randomPods(3) {
		raw, err := pod.Marshal()
		expect.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var pod corev1.Pod
		if pod.Unmarshal(raw) != nil {
			return
		}
		filtered, err := io.ReadAll(podwire.NewReader(bytes.NewReader(sent(t, watch.Modified, "Pod", raw))))
		expect.NoError(t, err)
		wantSame(t, &pod, events(t, filtered)[0])
	})
}

// BenchmarkDecode decodes a pod as the API server sends it, with the filter and, as the reference, without.
func BenchmarkDecode(b *testing.B) {
	encoded := frame(b, watch.Modified, typicalPod())
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"all":      func(in io.Reader) io.Reader { return in },
		"filtered": func(in io.Reader) io.Reader { return podwire.NewReader(in) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			in := reader(&endless{content: encoded})
			header := make([]byte, 4)
			var body []byte
			for b.Loop() {
				if _, err := io.ReadFull(in, header); err != nil {
					b.Fatal(err)
				}
				body = append(body[:0], make([]byte, binary.BigEndian.Uint32(header))...)
				if _, err := io.ReadFull(in, body); err != nil {
					b.Fatal(err)
				}
				event(b, body)
			}
		})
	}
}

// endless repeats its content.
type endless struct {
	content []byte
	next    int
}

func (e *endless) Read(into []byte) (int, error) {
	read := copy(into, e.content[e.next:])
	e.next = (e.next + read) % len(e.content)
	return read, nil
}

func serializer() *protobuf.Serializer { return protobuf.NewSerializer(scheme.Scheme, scheme.Scheme) }

// frame returns an event as the API server sends it.
func frame(tb testing.TB, kind watch.EventType, object runtime.Object) []byte {
	tb.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	expect.NoError(tb, err)
	marshaler, is := object.(interface{ Marshal() ([]byte, error) })
	if !is {
		tb.Fatalf("%T has no protobuf", object)
	}
	raw, err := marshaler.Marshal()
	expect.NoError(tb, err)
	return sent(tb, kind, kinds[0].Kind, raw)
}

// sent returns an event with an encoded object of v1 as the API server sends it.
func sent(tb testing.TB, event watch.EventType, kind string, raw []byte) []byte {
	tb.Helper()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}
	object, err := unknown.Marshal()
	expect.NoError(tb, err)
	whole := metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), object...)}}
	encoded, err := whole.Marshal()
	expect.NoError(tb, err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(encoded))), encoded...)
}

// events decodes a stream.
func events(tb testing.TB, stream []byte) []watch.Event {
	tb.Helper()
	var all []watch.Event
	for len(stream) > 0 {
		length := binary.BigEndian.Uint32(stream)
		all, stream = append(all, event(tb, stream[4:4+length])), stream[4+length:]
	}
	return all
}

func event(tb testing.TB, raw []byte) watch.Event {
	tb.Helper()
	var read metav1.WatchEvent
	expect.NoError(tb, read.Unmarshal(raw))
	object, _, err := serializer().Decode(read.Object.Raw, nil, nil)
	expect.NoError(tb, err)
	return watch.Event{Type: watch.EventType(read.Type), Object: object}
}

// decoded returns a pod after it was encoded.
func decoded(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	raw, err := pod.Marshal()
	expect.NoError(tb, err)
	var again corev1.Pod
	expect.NoError(tb, again.Unmarshal(raw))
	return &again
}

// randomPods returns pods with random values in all fields. Some names are those that decisions read.
func randomPods(count int) []*corev1.Pod {
	random := rand.New(rand.NewPCG(1, 2))
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(quantity *resource.Quantity, _ randfill.Continue) {
			*quantity = *resource.NewQuantity(random.Int64N(1000), resource.DecimalSI)
		},
		func(time *metav1.Time, _ randfill.Continue) { *time = metav1.Unix(random.Int64N(1<<31), 0) },
		func(fields *metav1.FieldsV1, c randfill.Continue) { fields.SetRawString(c.String(40)) },
		func(variable *corev1.EnvVar, c randfill.Continue) {
			c.FillNoCustom(variable)
			variable.Name = []string{names.EnvDINodes, names.EnvDIJobID, "USER"}[random.IntN(3)]
		},
		func(volume *corev1.Volume, c randfill.Continue) {
			c.FillNoCustom(volume)
			volume.Name = []string{names.NodesVolume, "user"}[random.IntN(2)]
		},
		func(condition *corev1.PodCondition, c randfill.Continue) {
			c.FillNoCustom(condition)
			condition.Type = []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodScheduled}[random.IntN(4)]
		},
	)
	pods := make([]*corev1.Pod, count)
	for i := range pods {
		pods[i] = &corev1.Pod{}
		fill.Fill(pods[i])
		pods[i].TypeMeta = metav1.TypeMeta{}
	}
	return pods
}

// typicalPod returns a running pod with what the API server, the scheduler and the kubelet add.
func typicalPod() *corev1.Pod {
	managed := metav1.ManagedFieldsEntry{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:status":{"f:conditions":{}}}`, 20))}
	ready := corev1.PodCondition{Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)}
	conditions := make([]corev1.PodCondition, 5)
	for i, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		conditions[i] = ready
		conditions[i].Type = kind
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "job-collector-0", Namespace: "team", Labels: map[string]string{names.LabelOperator: names.ControllerName},
			ManagedFields: []metav1.ManagedFieldsEntry{managed, managed},
		},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}}},
			Containers: []corev1.Container{{
				Name: "di-container", Image: "cartpole:dev", Command: []string{"/cartpole"}, Args: []string{"worker"},
				Env:          []corev1.EnvVar{{Name: names.EnvDIJobID, Value: "team.job"}, {Name: "USER", Value: "x"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets"}},
			}},
			Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeNotReady}, {Key: corev1.TaintNodeUnreachable}},
			NodeName:    "node-1", SecurityContext: &corev1.PodSecurityContext{},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: conditions, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "di-container", Ready: true, ContainerID: "containerd://x", ImageID: "sha256:x"}},
		},
	}
}
