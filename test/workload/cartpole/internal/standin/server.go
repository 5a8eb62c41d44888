// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// Ports of the pods and of the server itself.
const (
	ServerPort      = 8080
	collectorPort   = 22270
	learnerPort     = 22271
	aggregatorPort  = 22272
	coordinatorPort = 22273
	masterPort      = 10314

	maxBody = 1 << 20
)

// ServerName is the host name of the server.
const ServerName = "di-server.di-system"

// Server is as much of di-server's v1 protocol as the program calls, for one job.
type Server struct {
	namespace, job string
	gpusPerNode    int
	network        *Network
	keeper         *Keeper

	mu         sync.Mutex // protects all below
	made       int
	collectors []string
	learners   []unit
	requests   []Request
	fault      func(Request) int
}

// unit is a learner: one pod, or an aggregator with its DDP learner pods.
type unit struct {
	name string
	gpus int
	port int
	ddp  []ddpPod
}

type ddpPod struct {
	name        string
	first, gpus int
}

// Request is a call that was answered.
type Request struct {
	Method, Path, ContentType, Body string
}

// NewServer returns a server for one job.
func NewServer(namespace, job string, gpusPerNode int, network *Network, keeper *Keeper) *Server {
	return &Server{namespace: namespace, job: job, gpusPerNode: gpusPerNode, network: network, keeper: keeper}
}

// CoordinatorPod is the job's coordinator, to be run by the caller.
func (s *Server) CoordinatorPod() Pod {
	return s.pod(s.job+"-coordinator", "coordinator", map[string]string{"COORDINATOR_PORT": strconv.Itoa(coordinatorPort)})
}

// SetFault has the server answer requests with the status that f returns,
// instead of doing anything, unless that is 0.
func (s *Server) SetFault(f func(Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Requests returns the calls so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

type body struct {
	Collectors resources `json:"collectors"`
	Learners   resources `json:"learners"`
}

type resources struct {
	Replicas int    `json:"replicas"`
	GPUs     string `json:"gpus"`
}

type failedBody struct {
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
}

type reply struct {
	Success bool               `json:"success"`
	Code    int                `json:"code"`
	Message string             `json:"message"`
	Data    *diserver.Replicas `json:"data"`
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&raw); err != nil {
		answer(w, http.StatusBadRequest, reply{Code: 1, Message: err.Error()})
		return
	}
	request := Request{Method: r.Method, Path: r.URL.RequestURI(), ContentType: r.Header.Get("Content-Type"), Body: string(raw)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
	if s.fault != nil {
		if status := s.fault(request); status != 0 {
			answer(w, status, reply{Code: 1, Message: "fault"})
			return
		}
	}
	status, data, err := s.serve(r, raw) // pods outlive the request that asked for them
	if err != nil {
		answer(w, status, reply{Code: 1, Message: err.Error()})
		return
	}
	answer(w, http.StatusOK, reply{Success: true, Message: "done", Data: &data})
}

func (s *Server) serve(r *http.Request, raw []byte) (int, diserver.Replicas, error) {
	switch r.Method + " " + r.URL.Path {
	case "GET /v1alpha1/replicas":
		if aggregator := r.URL.Query().Get("aggregator"); aggregator != "" {
			return s.parts(aggregator)
		}
		return 0, s.list(), nil
	case "POST /v1alpha1/replicas":
		var b body
		if err := json.Unmarshal(raw, &b); err != nil {
			return http.StatusBadRequest, diserver.Replicas{}, err
		}
		return 0, s.create(b), nil
	case "DELETE /v1alpha1/replicas":
		var b body
		if err := json.Unmarshal(raw, &b); err != nil {
			return http.StatusBadRequest, diserver.Replicas{}, err
		}
		s.unlist(b)
		return 0, s.list(), nil
	case "POST /v1alpha1/replicas/failed":
		var b failedBody
		if err := json.Unmarshal(raw, &b); err != nil {
			return http.StatusBadRequest, diserver.Replicas{}, err
		}
		s.replace(b)
		return 0, s.list(), nil
	}
	return http.StatusNotImplemented, diserver.Replicas{}, fmt.Errorf("%s %s is not known", r.Method, r.URL.Path)
}

func (s *Server) create(b body) diserver.Replicas {
	before := s.list()
	for range b.Collectors.Replicas {
		s.collectors = append(s.collectors, s.startCollector())
	}
	gpus, _ := strconv.Atoi(b.Learners.GPUs) // none given is none
	for range b.Learners.Replicas {
		s.learners = append(s.learners, s.startLearner(gpus))
	}
	after := s.list()
	after.Collectors = after.Collectors[len(before.Collectors):]
	after.Learners = after.Learners[len(before.Learners):]
	return after
}

// unlist takes the newest replicas off the list. Their pods live on for a while,
// which here has no end.
func (s *Server) unlist(b body) {
	s.collectors = s.collectors[:max(0, len(s.collectors)-b.Collectors.Replicas)]
	s.learners = s.learners[:max(0, len(s.learners)-b.Learners.Replicas)]
}

func (s *Server) replace(b failedBody) {
	for i, name := range s.collectors {
		if slices.Contains(b.Collectors, name) {
			s.keeper.Stop(name)
			s.collectors[i] = s.startCollector()
		}
	}
	for i, u := range s.learners {
		if !slices.Contains(b.Learners, u.name) {
			continue
		}
		s.keeper.Stop(u.name)
		for _, d := range u.ddp {
			s.keeper.Stop(d.name)
		}
		s.learners[i] = s.startLearner(u.gpus)
	}
}

func (s *Server) startCollector() string {
	name := s.name("collector")
	s.keeper.Start(s.pod(name, "collector", map[string]string{"COLLECTOR_PORT": strconv.Itoa(collectorPort)}))
	return name
}

func (s *Server) startLearner(gpus int) unit {
	env := map[string]string{"LEARNER_PORT": strconv.Itoa(learnerPort)}
	if gpus <= 1 {
		u := unit{name: s.name("learner"), gpus: gpus, port: learnerPort}
		s.keeper.Start(s.pod(u.name, "learner", env))
		return u
	}
	u := unit{name: s.name("aggregator"), gpus: gpus, port: aggregatorPort}
	s.keeper.Start(s.pod(u.name, "aggregator", map[string]string{"AGGREGATOR_PORT": strconv.Itoa(aggregatorPort)}))
	for first := 0; first < gpus; first += s.gpusPerNode {
		u.ddp = append(u.ddp, ddpPod{name: s.name("ddp-learner"), first: first, gpus: min(s.gpusPerNode, gpus-first)})
	}
	for i, d := range u.ddp {
		ddpEnv := maps.Clone(env)
		maps.Copy(ddpEnv, map[string]string{
			"WORLD_SIZE": strconv.Itoa(gpus), "LOCAL_WORLD_SIZE": strconv.Itoa(d.gpus), "START_RANK": strconv.Itoa(d.first),
			"MASTER_ADDR": "localhost", "MASTER_PORT": strconv.Itoa(masterPort),
		})
		if i > 0 {
			ddpEnv["MASTER_ADDR"] = s.host(u.ddp[0].name)
		}
		s.keeper.Start(s.pod(d.name, "learner", ddpEnv))
	}
	return u
}

func (s *Server) pod(name, role string, env map[string]string) Pod {
	maps.Copy(env, map[string]string{
		"KUBERNETES_POD_NAMESPACE": s.namespace,
		"KUBERNETES_POD_NAME":      name,
		"KUBERNETES_SERVER_URL":    fmt.Sprintf("%s:%d", ServerName, ServerPort),
	})
	return Pod{Name: name, Role: role, Env: env, Host: s.network.Host(s.host(name))}
}

func (s *Server) name(kind string) string {
	s.made++
	return fmt.Sprintf("%s-%s-%05d", s.job, kind, s.made)
}

func (s *Server) host(pod string) string {
	return pod + "." + s.namespace
}

func (s *Server) url(pod string, port int) string {
	return fmt.Sprintf("%s:%d", s.host(pod), port)
}

func (s *Server) list() diserver.Replicas {
	r := diserver.Replicas{Namespace: s.namespace, Coordinator: s.job + "-coordinator"}
	for _, name := range s.collectors {
		r.Collectors = append(r.Collectors, s.url(name, collectorPort))
	}
	for _, u := range s.learners {
		r.Learners = append(r.Learners, s.url(u.name, u.port))
	}
	return r
}

func (s *Server) parts(aggregator string) (int, diserver.Replicas, error) {
	r := diserver.Replicas{Namespace: s.namespace, Coordinator: aggregator}
	i := slices.IndexFunc(s.learners, func(u unit) bool { return u.name == aggregator })
	if i < 0 {
		return http.StatusNotFound, r, fmt.Errorf("aggregator %q is not known", aggregator)
	}
	for _, d := range s.learners[i].ddp {
		for gpu := range d.gpus {
			r.Learners = append(r.Learners, s.url(d.name, learnerPort+gpu))
		}
	}
	return 0, r, nil
}

func answer(w http.ResponseWriter, status int, r reply) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(r) // the caller may have left
}
