package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// Assessment is what dovetail assess finds: what the same pods would cost, and which switches would save how much.
type Assessment struct {
	// At is the time of the cluster that was assessed; null before the first assessment.
	At *time.Time `json:"at"`
	// Computing is true while the next one is made; NotComputed states why none is.
	Computing   bool   `json:"computing"`
	NotComputed string `json:"notComputed"`
	// Sentences are the answer, Switch the one about the largest saving by a single switch; empty where none saves anything.
	Sentences []string `json:"sentences"`
	Switch    string   `json:"switch"`
	// Outcomes have the cost now first, and the lower bound last.
	Outcomes []assess.TitledOutcome `json:"outcomes"`
	// Switches are what single changes of the configuration would save, the largest saving first.
	Switches []assess.Switch `json:"switches"`
	// Kept are the nodes that stay in the end, by reason.
	Kept   []assess.Kept `json:"kept"`
	Prices string        `json:"prices"`
}

const (
	// assessmentAge sets how old an assessment may be. In a large cluster it is assessmentShare times as long as it took, as plans are: all
	// together take at most a fiftieth of one core.
	assessmentAge   = 10 * time.Minute
	assessmentShare = 50
	// assessedUnasked limits the nodes of a cluster that is assessed because the fleet is shown: some seconds of one core. A larger one is
	// assessed once somebody opens Savings. In a controller, which has other work, it is assessedInController.
	assessedUnasked      = 300
	assessedInController = 100
	// assessmentPatience sets how long a request waits for an assessment. The page then requests again.
	assessmentPatience = 20 * time.Second
)

// assessments has the last assessment. One at a time is made, apart from the requests: nobody has to wait for it.
type assessments struct {
	view func(context.Context) (*inspect.View, error)
	now  func() time.Time
	log  *slog.Logger
	// unasked limits the nodes of a cluster that is assessed for the view of the fleet.
	unasked int

	mu   sync.Mutex
	last *Assessment
	// made is when it began, took how long it took.
	made time.Time
	took time.Duration
	// done is closed once the assessment that is being made is there; nil if none is.
	done chan struct{}
}

func (c *Console) assessment(r *http.Request) (any, error) {
	asked := r.URL.Query().Get("compute")
	if asked != "" && asked != "true" && asked != "false" {
		return nil, invalid("compute", `"`+asked+`" is neither true nor false`)
	}
	return c.assessments.get(r.Context(), asked == "true", assessmentPatience)
}

// get is the last assessment. It waits so long for the first one, and starts one if the last is old; that of a large cluster only if it is
// asked to compute.
func (a *assessments) get(ctx context.Context, compute bool, patience time.Duration) (Assessment, error) {
	why, err := a.begin(ctx, compute)
	if err != nil {
		return Assessment{}, err
	}
	a.mu.Lock()
	last, done := a.last, a.done
	a.mu.Unlock()
	if last == nil && done != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		case <-ctx.Done():
			return Assessment{}, ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	out := noAssessment(why)
	if a.last != nil {
		out = *a.last
	}
	out.Computing = a.done != nil
	return out, nil
}

// noAssessment states why there is none.
func noAssessment(why string) Assessment {
	return Assessment{
		NotComputed: why, Sentences: []string{}, Outcomes: []assess.TitledOutcome{}, Switches: []assess.Switch{}, Kept: []assess.Kept{},
	}
}

// begin starts an assessment if one is due and none is being made. It returns why none is started.
func (a *assessments) begin(ctx context.Context, compute bool) (why string, _ error) {
	if !a.due() {
		return "", nil
	}
	view, err := a.view(ctx)
	if err != nil {
		return "", err
	}
	if n := len(view.Nodes); !compute && n > a.unasked {
		return fmt.Sprintf("a fleet of %d nodes is assessed once Savings is opened", n), nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil {
		a.done = make(chan struct{})
		go a.make(view)
	}
	return "", nil
}

func (a *assessments) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done == nil && (a.last == nil || a.now().Sub(a.made) >= max(assessmentAge, assessmentShare*a.took))
}

// make assesses a View. A panic in the engine, which is a bug, is why there is no assessment: the console goes on.
func (a *assessments) make(view *inspect.View) {
	began, at := a.now(), view.Snapshot.Now
	out := noAssessment("the assessment failed, which is a bug in Dovetail: the log of the console names the cause")
	out.At = &at
	defer func() {
		if caught := recover(); caught != nil {
			a.log.Error("an assessment panicked, which is a bug in Dovetail", "panic", caught)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.last, a.made, a.took = &out, began, a.now().Sub(began)
		close(a.done)
		a.done = nil
	}()
	settings := assess.DefaultSettings()
	settings.Consolidation.SpotToSpot = view.Search.SpotToSpot
	found := assess.Assess(view, settings)
	out = Assessment{
		At: &at, Sentences: found.Headline(), Switch: found.LargestSwitch(), Outcomes: found.TitledOutcomes(), Switches: found.Switches(),
		Kept: found.Kept, Prices: found.Prices,
	}
}
