package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// apiOutage is a row of the table of outages of the API server.
type apiOutage struct {
	name  string
	fault world.APIFault
	// lasts is how long it lasts at least, at the real pace; zero until it was seen that launches wait or go on.
	lasts time.Duration
	// loseLease has another holder take the leader's lease.
	loseLease bool
	// waits is true where no instance is launched before the outage is over.
	waits bool
}

// apiOutages are the rows.
var apiOutages = []apiOutage{
	{name: "2 s slow", fault: world.APIFault{Delay: 2 * time.Second}},
	{name: "the lease is lost", loseLease: true},
	{name: "all writes fail", fault: world.APIFault{Writes: http.StatusInternalServerError}, waits: true},
	{name: "too many requests (429)", fault: world.APIFault{All: http.StatusTooManyRequests}, waits: true},
	{name: "away for 10 min", fault: world.APIFault{Away: true}, lasts: 10 * time.Minute, waits: true},
}

// outcome is what a row states, and what its step checks.
func (o apiOutage) outcome() string {
	if o.waits {
		return "launches wait"
	}
	return "launches go on"
}

// apiTable is the table of outages of the API server as a page shows it, in Markdown.
func apiTable() string {
	var out strings.Builder
	fmt.Fprintln(&out, "| The API server | |")
	fmt.Fprintln(&out, "|---|---|")
	for _, o := range apiOutages {
		fmt.Fprintf(&out, "| %s | %s |\n", o.name, o.outcome())
	}
	fmt.Fprintln(&out, "| *scenario* | `api-server-down` |")
	return out.String()
}

// apiServerDown runs the rows: in each, the API server fails for the controller while a pod needs a node. Everything else in the cluster
// reaches it.
func apiServerDown(fleet Fleet) Scenario {
	r := &apiOutageCells{fleet: fleet}
	steps := []Step{
		{Name: "start the controller behind a proxy of the API server", Timeout: 30 * time.Second, Run: r.start},
		installPool(manifests.Outage, nil),
		{Name: "two nodes run pods", Timeout: time.Minute, Run: r.prepare},
	}
	for _, o := range apiOutages {
		steps = append(steps, Step{
			Name: "API server: " + o.name + ": " + o.outcome(), Timeout: launchWithin + recoveryWithin + fleet.paced(o.lasts),
			Run: func(ctx context.Context, w *World) error { return r.cell(ctx, w, o) },
		})
	}
	return Scenario{
		Name: "api-server-down", Long: true,
		Summary: "the API server is slow, refuses, or is away for the controller: no running node is touched, and all recovers within 2 min",
		Steps: append(steps,
			Step{Name: "each instance has its NodeClaim", Timeout: time.Minute, Run: awaitPaired}, deleteAll(onePerNodeApp, manifests.Outage)),
	}
}

// apiOutageCells is a run of the rows.
type apiOutageCells struct {
	outageCells
	fleet Fleet
	front *world.Front
}

func (r *apiOutageCells) start(ctx context.Context, w *World) (err error) {
	w.RestartControllerOnExit() // as a kubelet does: a controller that loses its lease exits
	if r.front, err = w.FrontAPIServer(); err != nil {
		return err
	}
	return w.StartController(ctx)
}

// cell runs one row.
func (r *apiOutageCells) cell(ctx context.Context, w *World, o apiOutage) error {
	kept, err := takeStock(ctx, w)
	if err != nil {
		return err
	}
	began, beganAWS, starts := time.Now(), w.AWS.Now(), w.ControllerStarts()
	r.front.Set(o.fault)
	if o.loseLease {
		if err := loseLease(ctx, w, starts); err != nil {
			return err
		}
	}
	r.pods++
	if err := w.Scale(ctx, onePerNodeApp, int32(r.pods)); err != nil {
		return err
	}
	if err := r.during(ctx, w, o, began); err != nil {
		return fmt.Errorf("during the outage: %w", err)
	}
	if err := kept.untouched(ctx, w); err != nil {
		return fmt.Errorf("during the outage: %w", err)
	}
	r.front.Set(world.APIFault{})
	if err := r.recover(ctx, w, changes{}); err != nil {
		return fmt.Errorf("after the outage: %w", err)
	}
	w.Note("the controller was started again %d times", w.ControllerStarts()-starts)
	rates := ratesOf(since(w, beganAWS))
	w.Note("%s", rates)
	return errors.Join(rates.err(), kept.untouched(ctx, w))
}

// during is what is seen while the API server fails.
func (r *apiOutageCells) during(ctx context.Context, w *World, o apiOutage, began time.Time) error {
	if !o.waits {
		return r.outageCells.during(ctx, w, outage{}, changes{})
	}
	limited, cancel := context.WithDeadline(ctx, began.Add(max(observed, r.fleet.paced(o.lasts))))
	defer cancel()
	if world.Until(limited, func() error { return runningPods(limited, w, r.pods) }) == nil {
		return errors.New("the pod runs, though launches cannot go on")
	}
	return ctx.Err()
}

// loseLease has another holder take the lease, and returns when the controller has exited for it and is started again.
func loseLease(ctx context.Context, w *World, starts int) error {
	err := world.Until(ctx, func() error {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "karpenter-leader-election"}
		if err := w.Client.Get(ctx, key, lease); err != nil {
			return err
		}
		other, now := "another", metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.AcquireTime = &other, &now, &now
		return w.Client.Update(ctx, lease)
	})
	if err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		if w.ControllerStarts() == starts {
			return errors.New("the controller has not exited, though another has its lease")
		}
		return nil
	})
}
