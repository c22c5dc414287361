package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/process"
)

const (
	// startTimeout and burstTimeout are far above what is measured on a busy host.
	startTimeout = 5 * time.Minute
	burstTimeout = 5 * time.Minute
	// quietPerPending is how long no instance launches after the last, for each pod that was pending: a pass that plans 30,000 pods on a
	// busy host takes a quarter of a minute. least is that for few pods.
	quietPerPending, least = time.Millisecond, 8 * time.Second
	// statusInterval is the interval at which kubelet reports the status of a node that does not change.
	statusInterval = 5 * time.Minute
)

// measurement is a fleet that is measured.
type measurement struct {
	*fleet
	cfg    Config
	report *Report
	// launched are the instances before the burst.
	before int
}

func (m *measurement) grow(ctx context.Context) error {
	begin := time.Now()
	if err := m.fleet.grow(ctx); err != nil {
		return err
	}
	// From here on, so that the queue does not have the launch of every instance.
	if err := m.EnableInterruptionQueue(); err != nil {
		return err
	}
	if err := m.apply(ctx, "10%", nil); err != nil {
		return err
	}
	if err := m.awaitListed(ctx); err != nil {
		return err
	}
	m.report.WriteSeconds = time.Since(begin).Seconds()
	return nil
}

// launch starts the controller, and measures until it is at rest.
func (m *measurement) launch(ctx context.Context) (Start, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	begin := time.Now()
	if err := m.LaunchController(ctx); err != nil {
		return Start{}, err
	}
	stop := m.watchMemory()
	err := m.AwaitController(ctx)
	out := Start{ReadySeconds: time.Since(begin).Seconds(), PeakMiB: mib(stop())}
	if err != nil {
		return out, err
	}
	stop = m.watchMemory()
	out.SettleSeconds, err = m.settle(ctx)
	out.SettleMiB = mib(stop())
	return out, err
}

// watchMemory samples the RSS of the controller until stop, which returns the highest.
func (m *measurement) watchMemory() (stop func() int64) {
	end, peak := make(chan struct{}), int64(0)
	var sampling sync.WaitGroup
	sampling.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			if pid, err := m.ControllerPID(); err == nil {
				if u, err := process.UsageOf(pid); err == nil {
					peak = max(peak, u.RSS)
				}
			}
			select {
			case <-end:
				return
			case <-ticker.C:
			}
		}
	})
	return func() int64 {
		close(end)
		sampling.Wait()
		return peak
	}
}

func (m *measurement) start(ctx context.Context) (err error) {
	m.report.Start, err = m.launch(ctx)
	return errors.Join(err, m.saveProfiles(ctx, "start"))
}

const (
	// calmShare is the share of a core below which the controller counts as at rest, if it takes no more twice in a row.
	calmShare = 0.1
	// longestSettle is after how long what the controller does counts as what it does at rest.
	longestSettle = 2 * time.Minute
)

// settle waits until the controller has done what follows its start, and returns how many seconds that takes.
func (m *measurement) settle(ctx context.Context) (float64, error) {
	begin := time.Now()
	for calm := 0; calm < 2 && time.Since(begin) < longestSettle; {
		share, err := m.busy(ctx, min(5*time.Second, m.size.Window))
		if err != nil {
			return 0, err
		}
		calm++
		if share > calmShare {
			calm = 0
		}
	}
	return time.Since(begin).Seconds(), nil
}

// busy is the share of a core that the controller takes for a while.
func (m *measurement) busy(ctx context.Context, d time.Duration) (float64, error) {
	pid, err := m.ControllerPID()
	if err != nil {
		return 0, err
	}
	before, err := process.UsageOf(pid)
	if err != nil {
		return 0, err
	}
	if !pause(ctx, d) {
		return 0, context.Cause(ctx)
	}
	after, err := process.UsageOf(pid)
	return (after.CPU - before.CPU).Seconds() / after.At.Sub(before.At).Seconds(), err
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// observe measures the controller for a window while nodes report their status, and do is done every second.
func (m *measurement) observe(ctx context.Context, do func(ctx context.Context, second int) error) (Load, error) {
	allocated, err := m.allocated(ctx)
	if err != nil {
		return Load{}, err
	}
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, 2)
	group.Go(func() { errs[0] = eachSecond(working, m.reportStatuses) })
	group.Go(func() { errs[1] = eachSecond(working, do) })
	stop, begin := m.watchMemory(), time.Now()
	share, err := m.busy(ctx, m.size.Window)
	peak, calls := stop(), m.callsSince(begin)
	cancel()
	group.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return Load{}, err
	}
	after, err := m.allocated(ctx)
	minutes := m.size.Window.Minutes()
	load := Load{
		CorePercent: 100 * share, PeakMiB: mib(peak), AllocMiBPerSecond: (after - allocated) / m.size.Window.Seconds() / (1 << 20),
		EC2CallsPerMinute: map[string]float64{},
	}
	for action, n := range calls {
		load.EC2CallsPerMinute[action] = float64(n) / minutes
	}
	return load, err
}

// eachSecond does something every second until ctx is done.
func eachSecond(ctx context.Context, do func(ctx context.Context, second int) error) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for second := 0; ; second++ {
		if err := do(ctx, second); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// reportStatuses is what the kubelets of all nodes do in a second: those that have their turn renew their status.
func (m *measurement) reportStatuses(ctx context.Context, second int) error {
	seconds := int(statusInterval.Seconds())
	for i := second % seconds; i < len(m.hosts); i += seconds {
		node := &corev1.Node{}
		node.Name = m.hosts[i].name
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if err := m.Client.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
			return fmt.Errorf("report the status of node %s: %w", node.Name, err)
		}
	}
	return nil
}

// callsSince counts the EC2 calls of the controller by action. Pages of a list count apart, since a list has as many as there are
// instances.
func (m *measurement) callsSince(begin time.Time) map[string]int {
	out := map[string]int{}
	for _, c := range m.aws.Calls() {
		if c.Service != "ec2" || c.Time.Before(begin) || !strings.Contains(c.Principal, m.Role()) {
			continue
		}
		action := c.Action
		if c.Parameters.Get("NextToken") != "" {
			action += nextPage
		}
		out[action]++
	}
	return out
}

// allocated is how many bytes the controller has allocated since its start. The profile has it, too, and requesting it costs little,
// while a scrape of the metrics of all pods would be most of what is measured.
func (m *measurement) allocated(ctx context.Context) (float64, error) {
	text, err := m.fetch(ctx, "/debug/pprof/heap?debug=1")
	if err != nil {
		return 0, err
	}
	const total = "# TotalAlloc = "
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, total); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the heap profile of the controller has no line %q", total)
}

// scrape reads the metrics once, as Prometheus does.
func (m *measurement) scrape(ctx context.Context) error {
	pid, err := m.ControllerPID()
	if err != nil {
		return err
	}
	before, err := process.UsageOf(pid)
	if err != nil {
		return err
	}
	stop := m.watchMemory()
	text, err := m.fetch(ctx, "/metrics")
	peak := stop()
	if err != nil {
		return err
	}
	after, err := process.UsageOf(pid)
	m.report.Scrape = Scrape{CPUSeconds: (after.CPU - before.CPU).Seconds(), PeakMiB: mib(peak), MiB: mib(int64(len(text)))}
	return err
}

// fetch reads a path of the port of the metrics.
func (m *measurement) fetch(ctx context.Context, path string) ([]byte, error) {
	url, err := m.MetricsURL()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/metrics")+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("measure the controller: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("measure the controller: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("measure the controller: %s answers %s", path, answer.Status)
	}
	return text, nil
}

func (m *measurement) rest(ctx context.Context) error {
	pid, err := m.ControllerPID()
	if err != nil {
		return err
	}
	stopProfile := m.profileCPU(ctx, "rest")
	m.report.Rest, err = m.observe(ctx, func(context.Context, int) error { return nil })
	if err != nil {
		return errors.Join(err, stopProfile())
	}
	u, err := process.UsageOf(pid)
	m.report.Rest.EndMiB = mib(u.RSS)
	return errors.Join(err, stopProfile(), m.saveProfiles(ctx, "rest"))
}

func (m *measurement) churn(ctx context.Context) error {
	stopProfile := m.profileCPU(ctx, "churn")
	var err error
	m.report.Churn, err = m.observe(ctx, func(ctx context.Context, second int) error {
		return m.fleet.churn(ctx, second*m.size.Churn, m.size.Churn)
	})
	return errors.Join(err, stopProfile())
}

// burst has pods become pending, and waits until the last instance is launched for them.
func (m *measurement) burst(ctx context.Context) error {
	stopProfile := m.profileCPU(ctx, "burst")
	stop := m.watchMemory()
	m.before = len(m.Running())
	begin := time.Now()
	if err := m.fleet.burst(ctx, m.size.Pending); err != nil {
		stop()
		return errors.Join(err, stopProfile())
	}
	b := Burst{WriteSeconds: time.Since(begin).Seconds()}
	err := m.awaitLaunched(ctx)
	b.PeakMiB = mib(stop())
	if err != nil {
		return errors.Join(err, stopProfile())
	}
	fleets := m.fleetCalls(begin)
	written := begin.Add(time.Duration(b.WriteSeconds * float64(time.Second)))
	b.Claims, b.CreateFleets = len(m.Running())-m.before, len(fleets)
	b.FirstFleetSeconds = fleets[0].Sub(written).Seconds()
	b.FirstFleetAfterFirstPodSeconds = fleets[0].Sub(begin).Seconds()
	b.LastFleetSeconds = fleets[len(fleets)-1].Sub(written).Seconds()
	m.report.Burst = b
	return errors.Join(stopProfile(), m.saveProfiles(ctx, "burst"))
}

// fleetCalls are the times of the controller's CreateFleet calls.
func (m *measurement) fleetCalls(begin time.Time) []time.Time {
	var out []time.Time
	for _, c := range m.aws.Calls() {
		if c.Action == "CreateFleet" && !c.Time.Before(begin) && c.Parameters.Get("DryRun") != "true" {
			out = append(out, c.Time)
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

// awaitLaunched waits until every NodeClaim has an instance, and none has been launched for a while.
func (m *measurement) awaitLaunched(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, burstTimeout)
	defer cancel()
	count, since := m.before, time.Now()
	for pause(ctx, 250*time.Millisecond) {
		if n := len(m.Running()); n != count {
			count, since = n, time.Now()
		}
		if count == m.before || time.Since(since) < max(least, time.Duration(m.size.Pending)*quietPerPending) {
			continue
		}
		waiting, err := m.withoutInstance(ctx)
		if err != nil || waiting == 0 {
			return err
		}
	}
	return fmt.Errorf("%d instances were launched so far: %w", count-m.before, context.Cause(ctx))
}

// withoutInstance counts the NodeClaims that have not been launched.
func (m *measurement) withoutInstance(ctx context.Context) (int, error) {
	var claims karpv1.NodeClaimList
	if err := m.Client.List(ctx, &claims); err != nil {
		return 0, err
	}
	n := 0
	for i := range claims.Items {
		if claims.Items[i].Status.ProviderID == "" {
			n++
		}
	}
	return n, nil
}

func (m *measurement) restart(ctx context.Context) (err error) {
	if err := m.KillController(); err != nil {
		return err
	}
	m.report.Restart, err = m.launch(ctx)
	return errors.Join(err, m.saveProfiles(ctx, "restart"))
}

// unharmed returns an error if a node, claim or instance is gone, or was to go.
func (m *measurement) unharmed(ctx context.Context) error {
	alive := map[string]bool{}
	for _, i := range m.Running() {
		alive[i.ID] = true
	}
	var claims karpv1.NodeClaimList
	if err := m.Client.List(ctx, &claims); err != nil {
		return err
	}
	kept := map[string]bool{}
	for i := range claims.Items {
		kept[claims.Items[i].Name] = claims.Items[i].DeletionTimestamp == nil
	}
	var lost []string
	for _, h := range m.hosts {
		if !alive[h.instance.ID] || !kept[h.claim] {
			lost = append(lost, h.claim)
		}
	}
	m.report.Lost = len(lost)
	if len(lost) > 0 {
		return fmt.Errorf("%d NodeClaims or their instances are gone, such as %s", len(lost), lost[0])
	}
	return nil
}

// saveProfiles saves the heap profile of the controller, if profiles are wanted.
func (m *measurement) saveProfiles(ctx context.Context, name string) error {
	if m.cfg.Profiles == "" {
		return nil
	}
	return m.fetchProfile(ctx, "heap?gc=1", name+".heap")
}

// profileCPU profiles the controller for half of the window; wait returns when it is saved.
func (m *measurement) profileCPU(ctx context.Context, name string) (wait func() error) {
	if m.cfg.Profiles == "" {
		return func() error { return nil }
	}
	result := make(chan error, 1)
	seconds := max(1, int(m.size.Window.Seconds()/2))
	go func() { result <- m.fetchProfile(ctx, fmt.Sprintf("profile?seconds=%d", seconds), name+".cpu") }()
	return func() error { return <-result }
}

func (m *measurement) fetchProfile(ctx context.Context, what, file string) error {
	text, err := m.fetch(ctx, "/debug/pprof/"+what)
	if err != nil {
		return err
	}
	return os.WriteFile(m.profile(file), text, 0o600)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
