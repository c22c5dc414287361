package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// service is a Deployment that requests are sent to.
type service struct {
	name     string
	replicas int
	// annotations are those of the Deployment, template those of its pods, in JSON.
	annotations, template string
}

// surge is the scenario surge-drain.
type surge struct {
	*disruptionFixture
	services []service
	requests *requests
	// moves is how many nodes are replaced, at least.
	moves int
}

// unprotected is the service with one replica that has not opted in. Its requests fail: the probe sees what it has to.
const unprotected = "single"

// surgeDrain replaces all nodes under services that get requests all the time. With 200 nodes these are 50 services, and 100 nodes are
// replaced.
func surgeDrain(fleet int) Scenario {
	s := &surge{disruptionFixture: newDisruptionFixture(), requests: newRequests()}
	n := max(6, fleet/4)
	if n >= 50 {
		s.moves = 2 * n
	}
	s.invariants = newInvariants(percentBudget(50))
	s.pool["AMI_ALIAS"], s.pool["BUDGET"], s.pool["CONSOLIDATE_AFTER"] = oldImage, "50%", "1h"
	s.services = []service{{name: unprotected, replicas: 1, annotations: "{}", template: "{}"}}
	for i := range n - 1 {
		if i%3 == 0 {
			s.services = append(s.services, service{
				name: fmt.Sprintf("surge-%d", i), replicas: 1, annotations: `{"dovetail.sh/drain": "Surge"}`, template: "{}",
			})
			continue
		}
		s.services = append(s.services, service{
			name: fmt.Sprintf("ordered-%d", i), replicas: 1 + i%3, annotations: "{}", template: `{"dovetail.sh/drain": "Ordered"}`,
		})
	}
	steps := append(
		s.setUp(),
		Step{Name: fmt.Sprintf("deploy %d services, and send requests to each", n), Timeout: 5 * time.Minute, Run: s.deploy},
		Step{Name: "change the AMI: each node is replaced, up to half of them at a time", Timeout: 30 * time.Minute, Run: s.move},
		Step{
			Name:    "no request has failed, but of the service with one replica that has not opted in",
			Timeout: time.Minute, PauseKills: true, Run: s.judge,
		},
		Step{Name: "delete the services", Timeout: time.Minute, PauseKills: true, Run: s.remove},
		s.tearDown(),
	)
	start := steps[0].Run
	steps[0].Run = func(ctx context.Context, w *World) error {
		w.SetEnv("SURGE_DRAIN", "true")
		if s.moves > 0 {
			w.SetEnv("BLAST_RADIUS", "off") // by default, a fleet is not replaced more than twice in an hour
		}
		w.History.Watch(s.requests.observe)
		if err := apply(ctx, w, manifests.PatchDeployments, nil); err != nil {
			return err
		}
		return start(ctx, w)
	}
	return Scenario{
		Name:    "surge-drain",
		Summary: fmt.Sprintf("all nodes are replaced under %d services: no request fails where one has replicas, or its owner has opted in", n),
		Long:    true,
		Background: func(ctx context.Context, _ *World) error {
			s.requests.run(ctx)
			return nil
		},
		Steps: steps,
	}
}

// names are those of the services that must answer every request.
func (s *surge) names() (out []string) {
	for _, service := range s.services {
		if service.name != unprotected {
			out = append(out, service.name)
		}
	}
	return out
}

func (s *surge) variables(of service) map[string]string {
	return map[string]string{
		"NAME": of.name, "REPLICAS": strconv.Itoa(of.replicas), "ANNOTATIONS": of.annotations, "TEMPLATE_ANNOTATIONS": of.template,
	}
}

// deploy creates the services, and begins to send requests.
func (s *surge) deploy(ctx context.Context, w *World) error {
	for _, service := range s.services {
		if err := apply(ctx, w, manifests.Service, s.variables(service)); err != nil {
			return err
		}
	}
	if err := s.awaitServices(ctx, w); err != nil {
		return err
	}
	s.requests.begin(append(s.names(), unprotected))
	w.Note("%d nodes", len(w.Running()))
	return noteCost(ctx, w)
}

func (s *surge) awaitServices(ctx context.Context, w *World) error {
	for _, service := range s.services {
		if err := awaitPodsRunning(ctx, w, service.name, service.replicas); err != nil {
			return err
		}
	}
	return nil
}

// move has all nodes drift, until enough of them were replaced.
func (s *surge) move(ctx context.Context, w *World) error {
	images := []string{newImage, oldImage}
	for i := 0; i == 0 || s.moved(w) < s.moves; i++ {
		begin := time.Now()
		image := images[i%2]
		if err := s.applyPool(ctx, w, map[string]string{"AMI_ALIAS": image}); err != nil {
			return err
		}
		if err := awaitOnlyImage(ctx, w, image); err != nil {
			return err
		}
		if err := s.awaitServices(ctx, w); err != nil {
			return err
		}
		w.Note("all nodes have %s after %.0f s; %d were replaced", image, time.Since(begin).Seconds(), s.moved(w))
	}
	return s.awaitRequests(ctx)
}

// moved counts the nodes that are gone.
func (s *surge) moved(w *World) int { return len(w.Instances()) - len(w.Running()) }

// awaitOnlyImage waits until all instances that run have an AMI, each with its NodeClaim.
func awaitOnlyImage(ctx context.Context, w *World, alias string) error {
	return world.Until(ctx, func() error { return awaitImageNow(ctx, w, alias) })
}

// awaitImageNow returns why not all instances that run have an AMI.
func awaitImageNow(ctx context.Context, w *World, alias string) error {
	id, err := w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-1.37-"+aliasRelease(alias))
	if err != nil {
		return err
	}
	for _, i := range w.Running() {
		if i.ImageID != id {
			return fmt.Errorf("instance %s has AMI %s, want %s", i.ID, i.ImageID, id)
		}
	}
	return nil
}

// awaitRequests waits until clients have used the last endpoints.
func (s *surge) awaitRequests(ctx context.Context) error {
	before, _ := s.requests.count(s.names())
	return world.Until(ctx, func() error {
		perService := int(2*endpointDelay/requestInterval) * len(s.names())
		if now, _ := s.requests.count(s.names()); now < before+perService {
			return fmt.Errorf("%d requests were sent since the last move, want %d", now-before, perService)
		}
		return nil
	})
}

// judge counts the failed requests.
func (s *surge) judge(_ context.Context, w *World) error {
	s.requests.end()
	sent, failed := s.requests.count(s.names())
	w.Note("%d requests to %d services while %d nodes were replaced: %d failed", sent, len(s.names()), s.moved(w), failed)
	others, gaps := s.requests.count([]string{unprotected})
	w.Note("of %d to the service with one replica that has not opted in, %d failed", others, gaps)
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d requests failed: %s", failed, sent, s.requests.failures())
	case gaps == 0:
		return errors.New("no request to the service that has not opted in failed: the probe proves nothing")
	}
	return s.invariants.check(w)
}

// remove deletes the services.
func (s *surge) remove(ctx context.Context, w *World) error {
	for _, service := range s.services {
		text, err := render(w, manifests.Service, s.variables(service))
		if err != nil {
			return err
		}
		if err := w.Delete(ctx, text); err != nil {
			return err
		}
	}
	for _, service := range s.services {
		if err := awaitPodsRunning(ctx, w, service.name, 0); err != nil {
			return err
		}
	}
	return nil
}
