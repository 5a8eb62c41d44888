// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// cluster is the API server of one spec, with configured webhooks that are not served yet.
type cluster struct {
	client.Client
	environment *testkit.API
	// marks counts the marks of awaitLearned.
	marks int
}

func newCluster(ctx context.Context) *cluster {
	GinkgoHelper()
	environment := specs.Must(testkit.StartAPI(ctx))
	DeferCleanup(environment.Stop)
	environment.Config.QPS = -1
	alone := specs.Must(client.New(environment.Config, client.Options{}))
	out, err := specs.Kubectl(ctx, environment.KubeConfig, "apply", "-k", filepath.Join(testkit.Root(), "config", "webhook"))
	Expect(err).NotTo(HaveOccurred(), out)
	return &cluster{Client: alone, environment: environment}
}

// definition reads the definition of DIJobs.
func (c *cluster) definition(ctx context.Context) *unstructured.Unstructured {
	GinkgoHelper()
	return specs.Must(definition(ctx, c))
}

func definition(ctx context.Context, api client.Client) (*unstructured.Unstructured, error) {
	crd := specs.Definition(webhook.CRD)
	if err := api.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	return crd, nil
}

// mutatingConfiguration returns an empty object with the name of the configuration.
func mutatingConfiguration() *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.MutatingConfiguration}}
}

// validatingConfiguration returns an empty object with the name of the configuration.
func validatingConfiguration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.ValidatingConfiguration}}
}

// authority reads the Secret of the webhooks' own authority.
func (c *cluster) authority(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	return specs.Get[corev1.Secret](ctx, c, "di-system", webhook.AuthoritySecret)
}

// replica is a webhook server in the test's process.
type replica struct {
	*webhook.Server
	// address is the listener's address, independent of the published one.
	address string
	clock   *testclock.FakeClock
	// stop stops it, once.
	stop func()
}

// serve starts a server with a URL, its own address by default. By default it has its own clock,
// and its client calls the API server directly.
func (c *cluster) serve(ctx context.Context, options webhook.Options) *replica {
	GinkgoHelper()
	listener := specs.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	// Certificates are valid from an hour before they are signed, and API servers use the real
	// time. No certificate may be signed later than that.
	made := &replica{address: listener.Addr().String()}
	var isGiven bool
	if made.clock, isGiven = options.Clock.(*testclock.FakeClock); !isGiven {
		made.clock = testclock.NewFakeClock(time.Now().Add(-24 * time.Hour))
	}
	switch {
	case options.Config != nil:
	case options.CertificateSecret != "":
		// The role in config is for certificates that the webhooks sign.
		options.Config = c.environment.Config
	default:
		var err error
		options.Config, err = c.environment.As(testkit.Webhook)
		Expect(err).NotTo(HaveOccurred())
	}
	options.Listener, options.Clock, options.Log = listener, made.clock, GinkgoLogr
	if options.URL == "" {
		options.URL = "https://" + made.address
	}
	made.Server = specs.Must(webhook.New(options))
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- made.Run(running) }()
	made.stop = sync.OnceFunc(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
	})
	DeferCleanup(made.stop)
	return made
}

// isReady returns the error of the replica's readiness check.
func (r *replica) isReady() error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/readyz", http.NoBody)
	if err != nil {
		return err
	}
	return r.Ready(request)
}

// pass advances the replica's clock until the condition holds. Each waiter gets the time that it
// waits for, so that the test does not depend on the machine's speed.
func (r *replica) pass(ctx context.Context, duration time.Duration, holds func() error) {
	GinkgoHelper()
	Eventually(func() error {
		if r.clock.HasWaiters() {
			r.clock.Step(duration)
		}
		return holds()
	}).WithContext(ctx).Should(Succeed())
}

// balancer forwards connections to ready replicas, like a Service.
type balancer struct {
	address string

	mutex    sync.Mutex
	replicas []*replica
	turn     int
	// open counts the open connections of each replica.
	open map[*replica]int
}

func newBalancer(ctx context.Context) *balancer {
	GinkgoHelper()
	listener := specs.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	b := &balancer{address: listener.Addr().String(), open: map[*replica]int{}}
	DeferCleanup(listener.Close)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go b.lead(connection)
		}
	}()
	return b
}

func (b *balancer) add(added *replica) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.replicas = append(b.replicas, added)
}

// remove stops forwarding to a replica.
func (b *balancer) remove(removed *replica) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for i := range b.replicas {
		if b.replicas[i] == removed {
			b.replicas = append(b.replicas[:i:i], b.replicas[i+1:]...)
			return
		}
	}
}

// opened returns how many connections to a replica are open.
func (b *balancer) opened(to *replica) int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.open[to]
}

func (b *balancer) count(to *replica, by int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.open[to] += by
}

// next returns a ready replica, in turns.
func (b *balancer) next() *replica {
	b.mutex.Lock()
	all := append(append([]*replica{}, b.replicas[min(b.turn, len(b.replicas)):]...), b.replicas[:min(b.turn, len(b.replicas))]...)
	b.turn = (b.turn + 1) % max(len(b.replicas), 1)
	b.mutex.Unlock()
	for _, candidate := range all {
		if candidate.isReady() == nil {
			return candidate
		}
	}
	return nil
}

// lead copies between two connections until both have ended.
func (b *balancer) lead(from net.Conn) {
	defer func() { _ = from.Close() }()
	to := b.next()
	if to == nil {
		return
	}
	b.count(to, 1)
	defer b.count(to, -1)
	onward, err := net.Dial("tcp", to.address) //nolint:noctx // it ends with what it leads
	if err != nil {
		return
	}
	var both sync.WaitGroup
	join := func(into, of net.Conn) {
		_, _ = io.Copy(into, of)
		if half, ok := into.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	}
	both.Go(func() { join(onward, from) })
	both.Go(func() { join(from, onward) })
	both.Wait()
	_ = onward.Close()
}

// caller calls the webhooks continuously, directly and through the API server.
type caller struct {
	api     client.Client
	address string
	// job is read in the version that is not stored; nil for no reads.
	job   *unstructured.Unstructured
	calls atomic.Int32
	// failed is the error of the first failed call, which is the last call.
	failed atomic.Pointer[error]
	// rest is locked while no calls must be made.
	rest sync.Mutex
}

// start calls until the spec or the returned function ends it. That function returns the error of a
// failed call.
func (c *caller) start(ctx context.Context) (stop func() error) {
	called, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- c.run(called) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-failed
	})
	DeferCleanup(func() { _ = stop() })
	return stop
}

// run calls until the context ends, or a call fails.
func (c *caller) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.call(ctx); err != nil && ctx.Err() == nil {
			c.failed.Store(&err)
			return err
		}
		c.calls.Add(1)
	}
	return nil
}

func (c *caller) call(ctx context.Context) error {
	c.rest.Lock()
	defer c.rest.Unlock()
	bundle, err := c.bundle(ctx)
	if err != nil {
		return err
	}
	if c.job != nil {
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(c.job), c.job.DeepCopy()); err != nil {
			return fmt.Errorf("reading a job in the version that is not stored: %w", err)
		}
	}
	return errors.Join(admissionprobe.Probe(ctx, c.api, metav1.NamespaceDefault), c.shake(ctx, bundle))
}

// more waits for the given number of additional calls.
func (c *caller) more(ctx context.Context, calls int32) {
	GinkgoHelper()
	reached := c.calls.Load()
	Eventually(func() (int32, error) {
		if failed := c.failed.Load(); failed != nil {
			return 0, StopTrying("a call failed").Wrap(*failed)
		}
		return c.calls.Load(), nil
	}).WithContext(ctx).Should(BeNumerically(">=", reached+calls))
}

// bundle returns the published CA bundle of the conversion.
func (c *caller) bundle(ctx context.Context) ([]byte, error) {
	crd, err := definition(ctx, c.api)
	if err != nil {
		return nil, err
	}
	encoded, _, err := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(encoded)
}

// bundles returns the published CA bundles of all objects.
func (c *caller) bundles(ctx context.Context) (map[string][]byte, error) {
	converting, err := c.bundle(ctx)
	found := map[string][]byte{"conversion": converting}
	mutating, validating := mutatingConfiguration(), validatingConfiguration()
	err = errors.Join(err, c.api.Get(ctx, client.ObjectKeyFromObject(mutating), mutating), c.api.Get(ctx, client.ObjectKeyFromObject(validating), validating))
	for i := range mutating.Webhooks {
		found[mutating.Webhooks[i].Name] = mutating.Webhooks[i].ClientConfig.CABundle
	}
	for i := range validating.Webhooks {
		found[validating.Webhooks[i].Name] = validating.Webhooks[i].ClientConfig.CABundle
	}
	return found, err
}

// isPublishedEverywhere returns nil if all objects have exactly this bundle.
func (c *caller) isPublishedEverywhere(ctx context.Context, bundle []byte) error {
	found, err := c.bundles(ctx)
	for place, there := range found {
		if !bytes.Equal(there, bundle) {
			err = errors.Join(err, fmt.Errorf("published in %s is\n%s", place, there))
		}
	}
	return err
}

// isPublished returns nil if the conversion has exactly this bundle.
func (c *caller) isPublished(ctx context.Context, bundle []byte) error {
	found, err := c.bundle(ctx)
	if err == nil && !bytes.Equal(found, bundle) {
		err = fmt.Errorf("published is\n%s", found)
	}
	return err
}

// shake opens a connection as a client that trusts only the bundle.
func (c *caller) shake(ctx context.Context, bundle []byte) error {
	return shake(ctx, c.address, bundle)
}

func shake(ctx context.Context, address string, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting by a bundle: %w", err)
	}
	return connection.Close()
}
