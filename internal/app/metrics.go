package app

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// metrics is what /metrics shows. Labels are routes, phases and kinds, whose number
// is fixed; never handles, ids or anything else that callers choose.
type metrics struct {
	registry    *prometheus.Registry
	transitions *prometheus.CounterVec
	requests    *prometheus.CounterVec
	latency     *prometheus.HistogramVec
	pushes      *prometheus.CounterVec
	deliveries  *prometheus.HistogramVec
	requestsNow atomic.Int64
	streamsNow  atomic.Int64
	batches     prometheus.Histogram
	commits     prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(), deliveries: newDeliveries(),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_transitions_total", Help: "What happened to tasks, by kind.",
		}, []string{"kind"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_http_requests_total", Help: "Answered requests by route and status.",
		}, []string{"route", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_http_request_seconds", Help: "Time to answer, by route; event streams are left out, waiting is not.",
			Buckets: []float64{.0005, .001, .002, .004, .008, .016, .032, .064, .125, .25, .5, 1, 2, 5, 10, 30, 60},
		}, []string{"route"}),
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_push_tries_total", Help: "Tries to deliver a push notification, by what became of them.",
		}, []string{"result"}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_store_batch_size", Help: "Operations committed together.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_store_commit_seconds", Help: "Time of a store transaction, its commit included.",
			Buckets: prometheus.ExponentialBuckets(.0001, 2, 16),
		}),
	}
	m.registry.MustRegister(m.transitions, m.requests, m.latency, m.pushes, m.deliveries, m.batches, m.commits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// batch learns of each transaction of the store.
func (m *metrics) batch(size int, took time.Duration) {
	m.batches.Observe(float64(size))
	m.commits.Observe(took.Seconds())
}

// request learns of each answered request.
func (m *metrics) request(r *http.Request, s httpx.Summary) {
	route := httpx.Route(r)
	m.requests.WithLabelValues(route, strconv.Itoa(s.Status)).Inc()
	if !s.Stream {
		m.latency.WithLabelValues(route).Observe(s.Took.Seconds())
	}
}

// streaming counts open event streams.
func (m *metrics) streaming(delta int) { m.streamsNow.Add(int64(delta)) }

// requestsOpen counts the requests under way.
func (m *metrics) requestsOpen(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requestsNow.Add(1)
		defer m.requestsNow.Add(-1)
		next.ServeHTTP(w, r)
	})
}

// watchOpen shows the requests under way, and how many of them wait: workers for a
// task, callers for the end of one.
func (m *metrics) watchOpen(waiting func() engine.Waiting, parked func() int64) {
	gauge := func(kind string, now func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_http_open", Help: "Requests under way: all, those that poll or wait, polls among them that are parked, and event streams.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(now()) })
	}
	m.registry.MustRegister(
		gauge("all", func() int64 { return m.requestsNow.Load() + parked() }), gauge("stream", m.streamsNow.Load),
		gauge("parked", parked),
		gauge("poll", func() int64 { w := waiting(); return w.Polls + w.Sends }))
}

// watchQueue shows the queue as it is when somebody asks.
func (m *metrics) watchQueue(reads hub.Reads) { m.registry.MustRegister(&queueCollector{reads: reads}) }

var (
	queueDesc  = prometheus.NewDesc("holdfast_queue_tasks", "Unfinished tasks by phase.", []string{"phase"}, nil)
	oldestDesc = prometheus.NewDesc("holdfast_queue_oldest_ready_seconds", "How long the longest wait for a callee is.", nil, nil)
)

// queueCollector asks the store, which counts, at most once a second, however many ask
// it.
type queueCollector struct {
	reads hub.Reads
	mu    sync.Mutex
	until time.Time
	last  hub.QueueStats
	err   error
}

func (c *queueCollector) stats() (hub.QueueStats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.until) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c.last, c.err = c.reads.QueueStats(ctx)
		c.until = now.Add(time.Second)
	}
	return c.last, c.err
}

// Describe implements prometheus.Collector.
func (*queueCollector) Describe(ch chan<- *prometheus.Desc) { ch <- queueDesc; ch <- oldestDesc }

// Collect implements prometheus.Collector.
func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	q, err := c.stats()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(queueDesc, err)
		return
	}
	for phase, n := range map[hub.Phase]int{hub.Ready: q.Ready, hub.Leased: q.Leased, hub.Parked: q.Parked} {
		ch <- prometheus.MustNewConstMetric(queueDesc, prometheus.GaugeValue, float64(n), phase.String())
	}
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, q.OldestReady.Seconds())
}

// meteredStore counts the transitions of a store.
type meteredStore struct {
	hub.Store
	count *prometheus.CounterVec
}

func (s *meteredStore) add(kind string, n int) {
	if n > 0 {
		s.count.WithLabelValues(kind).Add(float64(n))
	}
}

// refused counts an operation that was not done, by the code of its error.
func (s *meteredStore) refused(err error) bool {
	if err != nil {
		s.add("refused_"+hub.Errorf(hub.KindOf(err), "").Code, 1)
	}
	return err != nil
}

// claimed counts the outcome of a claim.
func (s *meteredStore) claimed(t *hub.Task, failed []string) {
	if t != nil {
		s.add("claimed", 1)
	}
	s.add("failed", len(failed))
}

// Send implements hub.Transitions.
func (s *meteredStore) Send(ctx context.Context, m hub.Send) (hub.Sent, error) {
	sent, err := s.Store.Send(ctx, m)
	if s.refused(err) {
		return sent, err
	}
	switch {
	case sent.Replayed:
		s.add("send_replayed", 1)
	case sent.Created:
		s.add("sent", 1)
	case sent.Answered:
		s.add("answered", 1)
	default:
		s.add("message", 1)
	}
	s.claimed(sent.Claimed, sent.Failed)
	return sent, nil
}

// Claim implements hub.Transitions.
func (s *meteredStore) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (hub.Claimed, error) {
	got, err := s.Store.Claim(ctx, callee, c)
	if !s.refused(err) {
		s.claimed(got.Task, got.Failed)
	}
	return got, err
}

// Release implements hub.Transitions.
func (s *meteredStore) Release(ctx context.Context, callee, task string, attempt int) error {
	err := s.Store.Release(ctx, callee, task, attempt)
	if !s.refused(err) {
		s.add("released", 1)
	}
	return err
}

// Lose implements hub.Transitions.
func (s *meteredStore) Lose(ctx context.Context, l hub.Loss) (*hub.Task, error) {
	t, err := s.Store.Lose(ctx, l)
	switch {
	case s.refused(err):
	case t.State == hub.Failed:
		s.add("failed", 1)
	default:
		s.add("lost", 1)
	}
	return t, err
}

// Report implements hub.Transitions.
func (s *meteredStore) Report(ctx context.Context, r hub.Report) (hub.Reported, error) {
	done, err := s.Store.Report(ctx, r)
	if s.refused(err) {
		return done, err
	}
	switch {
	case done.Replayed:
		s.add("report_replayed", 1)
	case r.State.Settled():
		s.add(r.State.String(), 1)
	default:
		s.add("progress", 1)
	}
	s.claimed(done.Next, done.Failed)
	return done, nil
}

// Heartbeat implements hub.Transitions.
func (s *meteredStore) Heartbeat(ctx context.Context, h hub.Heartbeat) (hub.Beat, error) {
	b, err := s.Store.Heartbeat(ctx, h)
	if !s.refused(err) {
		s.add("heartbeat", 1)
	}
	return b, err
}

// Cancel implements hub.Transitions.
func (s *meteredStore) Cancel(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (*hub.Task, error) {
	t, err := s.Store.Cancel(ctx, ref, by)
	if !s.refused(err) {
		s.add("canceled", 1)
	}
	return t, err
}

// Requeue implements hub.Transitions.
func (s *meteredStore) Requeue(ctx context.Context, task, newID string) (*hub.Task, error) {
	t, err := s.Store.Requeue(ctx, task, newID)
	if !s.refused(err) {
		s.add("requeued", 1)
	}
	return t, err
}

// Sweep implements hub.Transitions.
func (s *meteredStore) Sweep(ctx context.Context, limit int, leases bool, l hub.Limits) (hub.Swept, error) {
	swept, err := s.Store.Sweep(ctx, limit, leases, l)
	s.add("swept", swept.Changed)
	s.add("failed", len(swept.Tasks))
	return swept, err
}

// Prune implements hub.Transitions.
func (s *meteredStore) Prune(ctx context.Context, before time.Time, limit int) (hub.Pruned, error) {
	out, err := s.Store.Prune(ctx, before, limit)
	s.add("pruned", out.Tasks)
	return out, err
}
