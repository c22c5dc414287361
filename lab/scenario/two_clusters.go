package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	steadyApp, briefApp = "steady", "brief"
	// expiringNodes is how many nodes of each cluster expire soon.
	expiringNodes = 5
	// clockSpeed is how fast the account's clock runs, clockLag how far it is behind that of the controllers at first:
	// whatever that is launched is older for the controllers than any grace period.
	clockSpeed, clockLag = 10, time.Hour
	// sharedDuration is how long, on the account's clock, the clusters run side by side.
	sharedDuration = 10 * time.Minute
	// conflictWithin is when the clash must be named, and exitWithin when a controller of the wrong name must have finished.
	conflictWithin, exitWithin = 10 * time.Second, 5 * time.Second
)

// sharedNameWorld configures two clusters with one name in one account with a fast clock.
func sharedNameWorld(cfg *world.Config) {
	cfg.Clusters, cfg.OneName = 2, true
	cfg.Clock = clock.NewFast(time.Now().Add(-clockLag), clockSpeed)
}

// clusterImages are the AMI aliases of the two clusters. The second controller may not call eks:DescribeCluster, so its
// nodes need an image family that works without the service CIDR.
var clusterImages = []string{"al2023@latest", "bottlerocket@latest"}

// twoClustersOneName runs two clusters with one name side by side.
func twoClustersOneName(nodes int) Scenario {
	nodesPerCluster := nodes / 2
	return Scenario{
		Name: "two-clusters-one-name",
		Summary: fmt.Sprintf(
			"two clusters with one name in one account, %d nodes each: neither changes the other's resources",
			nodesPerCluster,
		),
		Long:      true,
		Configure: sharedNameWorld,
		Steps: []Step{
			{Name: "start the first cluster's controller", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error {
				for _, c := range w.Clusters {
					c.RestartControllerOnExit() // on a busy host it may lose its lease, and exits
				}
				return w.StartController(ctx)
			}},
			{
				Name:    "the second cluster's controller detects that EKS has the name for another cluster, and exits within 5 s",
				Timeout: 30 * time.Second,
				Run:     secondControllerExits,
			},
			{
				Name:    "without eks:DescribeCluster the second controller starts",
				Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					w.Clusters[1].DenyDescribeCluster()
					return w.Clusters[1].StartController(ctx)
				},
			},
			{Name: "launch a node in each cluster: both report the name conflict within 10 s", Timeout: 2 * time.Minute, Run: conflictReported},
			{Name: "dovetail doctor reports the conflict", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error {
				uids, err := clusterUIDs(ctx, w)
				if err != nil {
					return err
				}
				_, err = awaitRemedy(ctx, w, "identity-foreign-instance", "cluster "+w.Name, uids[1])
				return err
			}},
			{
				Name:    fmt.Sprintf("scale to %d nodes in each cluster: all pods run", nodesPerCluster),
				Timeout: 6 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return scaleBoth(ctx, w, nodesPerCluster-expiringNodes, expiringNodes)
				},
			},
			{
				Name:    "10 minutes of the account's clock, with expiration, drift, consolidation and garbage collection: neither changes the other's resources",
				Timeout: 4 * time.Minute,
				Run:     runSideBySide,
			},
			{
				Name:       "all pods run; each cluster has one instance per NodeClaim and no other",
				Timeout:    2 * time.Minute,
				PauseKills: true,
				Run: func(ctx context.Context, w *World) error {
					if err := awaitPodsInBoth(ctx, w, nodesPerCluster-expiringNodes, expiringNodes); err != nil {
						return err
					}
					return awaitPairedInBoth(ctx, w)
				},
			},
			{
				Name:       "scale to 0 in both: all nodes and instances terminate",
				Timeout:    4 * time.Minute,
				PauseKills: true,
				Run: func(ctx context.Context, w *World) error {
					if err := scaleBoth(ctx, w, 0, 0); err != nil {
						return err
					}
					return errors.Join(awaitEmpty(ctx, w, steadyApp), foreignChanges(w.AWS.Calls(), w.Clusters))
				},
			},
			{
				Name:       "delete NodePools and EC2NodeClasses: no resource is left",
				Timeout:    time.Minute,
				PauseKills: true,
				Run: func(ctx context.Context, w *World) error {
					for n := range w.Clusters {
						text, err := clusterManifest(w, n, manifests.TwoClustersPools)
						if err != nil {
							return err
						}
						if err := w.Clusters[n].Delete(ctx, text); err != nil {
							return err
						}
					}
					return errors.Join(awaitNothingLeft(ctx, w.at(1)), awaitNothingLeft(ctx, w), foreignChanges(w.AWS.Calls(), w.Clusters))
				},
			},
		},
	}
}

// at is the world as seen from another of its clusters.
func (w *World) at(n int) *World { return &World{World: w.World, Cluster: w.Clusters[n]} }

func clusterManifest(w *World, n int, name string) ([]byte, error) {
	return render(w.at(n), name, map[string]string{"AMI_ALIAS": clusterImages[n], "GENERATION": "1", "DRIFT_BUDGET": "0"})
}

// driftBoth changes the template of both clusters' steady NodePools to the second generation, with this drift budget.
func driftBoth(ctx context.Context, w *World, budget string) error {
	for n, c := range w.Clusters {
		text, err := render(
			w.at(n),
			manifests.TwoClustersPools,
			map[string]string{"AMI_ALIAS": clusterImages[n], "GENERATION": "2", "DRIFT_BUDGET": budget},
		)
		if err != nil {
			return err
		}
		if err := c.Apply(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// secondControllerExits starts the second controller, which must exit with the reason and without any change.
func secondControllerExits(ctx context.Context, w *World) error {
	second := w.Clusters[1]
	begin := time.Now()
	output, err := second.RunController(ctx)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	w.Note("after %.1f s: %s", took.Seconds(), output)
	for _, part := range []string{"IdentityMismatch: this API server is " + second.Endpoint(), "settings.clusterName names", w.Endpoint()} {
		if !strings.Contains(output, part) {
			return fmt.Errorf("the controller's output does not contain %q", part)
		}
	}
	for _, c := range w.AWS.Calls() {
		if strings.HasSuffix(c.Principal, "/"+second.ID) && len(c.Resources) > 0 {
			return fmt.Errorf("the controller called %s on %s", c.Action, strings.Join(c.Resources, ", "))
		}
	}
	if took > exitWithin {
		return fmt.Errorf("the controller took %v to exit", took)
	}
	return nil
}

// conflictReported creates a NodePool and one pod in each cluster, and waits until each reports the other.
func conflictReported(ctx context.Context, w *World) error {
	for n, c := range w.Clusters {
		for _, name := range []string{manifests.TwoClustersPools, manifests.TwoClustersWorkload} {
			text, err := clusterManifest(w, n, name)
			if err != nil {
				return err
			}
			if err := c.Apply(ctx, text); err != nil {
				return err
			}
		}
		if err := awaitPoolReady(ctx, w.at(n)); err != nil {
			return err
		}
	}
	if err := scaleBoth(ctx, w, 1, 0); err != nil {
		return err
	}
	uids, err := clusterUIDs(ctx, w)
	if err != nil {
		return err
	}
	for n := range w.Clusters {
		other := 1 - n
		var late time.Duration
		err := world.Until(ctx, func() error {
			if err := conflictVisible(ctx, w.at(n), uids[other]); err != nil {
				return fmt.Errorf("cluster %s: %w", w.Clusters[n].ID, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if late, err = conflictDelay(ctx, w, n); err != nil {
			return err
		}
		w.Note("%s reported the conflict %.1f s after the other's first instance", w.Clusters[n].ID, late.Seconds())
		if late > conflictWithin {
			return fmt.Errorf("cluster %s: the conflict was reported %v after the other's first instance", w.Clusters[n].ID, late)
		}
	}
	return nil
}

// clusterUIDs returns the UIDs of the clusters' kube-system namespaces, which identify them.
func clusterUIDs(ctx context.Context, w *World) ([]string, error) {
	var out []string
	for _, c := range w.Clusters {
		system := &corev1.Namespace{}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
			return nil, err
		}
		out = append(out, string(system.UID))
	}
	return out, nil
}

// conflictVisible checks the condition and event on every NodePool, and the metric.
func conflictVisible(ctx context.Context, w *World, other string) error {
	var pools karpv1.NodePoolList
	var events corev1.EventList
	if err := list(ctx, w, &pools, &events); err != nil {
		return err
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		c, ok := condition.Get(pool, karpv1.ConditionClusterNameShared)
		if !ok || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, other) {
			return fmt.Errorf("NodePool %s does not have ClusterNameShared=True with the other's UID", pool.Name)
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == pool.UID && e.Reason == karpv1.ConditionClusterNameShared
		}) {
			return fmt.Errorf("there is no event ClusterNameShared on NodePool %s", pool.Name)
		}
	}
	metrics, err := w.Metrics(ctx)
	if err != nil {
		return err
	}
	if gauge := `dovetail_foreign_instances{cluster_uid="` + other + `"}`; !strings.Contains(metrics, gauge) {
		return fmt.Errorf("there is no metric %s", gauge)
	}
	return nil
}

// conflictDelay is how long after the other cluster's first launch the condition of cluster n was set. The launch time
// is on the account's clock and is converted to the controllers'.
func conflictDelay(ctx context.Context, w *World, n int) (time.Duration, error) {
	var pools karpv1.NodePoolList
	if err := list(ctx, w.at(n), &pools); err != nil {
		return 0, err
	}
	var first time.Time
	for _, c := range w.AWS.Calls() {
		if strings.HasSuffix(c.Principal, "/"+w.Clusters[1-n].ID) && c.Action == "CreateFleet" && c.ErrorCode == "" {
			first = c.Time
			break
		}
	}
	launched := time.Now().Add(-w.AWS.Now().Sub(first) / clockSpeed)
	var late time.Duration
	for i := range pools.Items {
		c, _ := condition.Get(&pools.Items[i], karpv1.ConditionClusterNameShared)
		late = max(late, c.LastTransitionTime.Sub(launched))
	}
	return late, nil
}

// scaleBoth scales the workloads of both clusters, and waits until all pods run.
func scaleBoth(ctx context.Context, w *World, steady, brief int) error {
	begin := time.Now()
	for _, c := range w.Clusters {
		if err := errors.Join(c.Scale(ctx, steadyApp, int32(steady)), c.Scale(ctx, briefApp, int32(brief))); err != nil {
			return err
		}
	}
	if err := awaitPodsInBoth(ctx, w, steady, brief); err != nil {
		return err
	}
	if steady+brief > 0 {
		w.Note("%d nodes in both after %.0f s", len(w.Running()), time.Since(begin).Seconds())
	}
	return nil
}

func awaitPodsInBoth(ctx context.Context, w *World, steady, brief int) error {
	for n := range w.Clusters {
		if err := errors.Join(awaitPodsRunning(ctx, w.at(n), steadyApp, steady), awaitPodsRunning(ctx, w.at(n), briefApp, brief)); err != nil {
			return fmt.Errorf("cluster %s: %w", w.Clusters[n].ID, err)
		}
	}
	return nil
}

// runSideBySide lets time pass, and restarts both controllers halfway: garbage collection does most after a start.
func runSideBySide(ctx context.Context, w *World) error {
	begin := w.AWS.Now()
	pass := func(until time.Duration) error {
		return world.Until(ctx, func() error {
			if passed := w.AWS.Now().Sub(begin); passed < until {
				return fmt.Errorf("%v of the account's clock have passed", passed.Round(time.Second))
			}
			return nil
		})
	}
	if err := pass(sharedDuration / 2); err != nil {
		return err
	}
	for _, c := range w.Clusters {
		if err := errors.Join(c.StopController(ctx), c.StartController(ctx)); err != nil {
			return err
		}
	}
	if err := driftBoth(ctx, w, "5"); err != nil {
		return err
	}
	if err := pass(sharedDuration); err != nil {
		return err
	}
	for n := range w.Clusters {
		if err := world.Until(ctx, func() error { return replacedForDrift(ctx, w.at(n)) }); err != nil {
			return fmt.Errorf("cluster %s: %w", w.Clusters[n].ID, err)
		}
	}
	if err := driftBoth(ctx, w, "0"); err != nil { // started replacements complete, no others start
		return err
	}
	for n, c := range w.Clusters {
		own := callsOf(w.AWS.Calls(), c)
		ended := 0
		for _, claim := range c.History.Claims() {
			if !claim.DeletedAt.IsZero() {
				ended++
			}
		}
		w.Note("%s: %d CreateFleet, %d TerminateInstances, %d CreateTags, %d DescribeInstances calls; %d NodeClaims deleted", c.ID,
			own["CreateFleet"], own["TerminateInstances"], own["CreateTags"], own["DescribeInstances"], ended)
		if ended == 0 || own["TerminateInstances"] == 0 {
			return fmt.Errorf("cluster %s: no node has expired, so the step proves nothing", w.Clusters[n].ID)
		}
	}
	return foreignChanges(w.AWS.Calls(), w.Clusters)
}

// replacedForDrift checks that nodes of the second generation have come up.
func replacedForDrift(ctx context.Context, w *World) error {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	n := 0
	for i := range claims.Items {
		if c := &claims.Items[i]; c.Labels["lab.dovetail.sh/generation"] == "2" && condition.IsTrue(c, karpv1.ConditionInitialized) {
			n++
		}
	}
	if n == 0 {
		return errors.New("no node was replaced for drift, so the step proves nothing")
	}
	w.Note("%d nodes were replaced for drift", n)
	return nil
}

// callsOf counts the successful calls of a cluster's autoscaler by action.
func callsOf(calls []awsim.Call, c *world.Cluster) map[string]int {
	out := map[string]int{}
	for _, call := range calls {
		if strings.HasSuffix(call.Principal, "/"+c.ID) && call.ErrorCode == "" {
			out[call.Action]++
		}
	}
	return out
}

// foreignChanges returns an error for each call by which one cluster's autoscaler changed a resource that another's
// created.
func foreignChanges(calls []awsim.Call, clusters []*world.Cluster) error {
	madeBy := map[string]string{}
	var errs []error
	for _, call := range calls {
		if call.ErrorCode != "" {
			continue
		}
		caller := ""
		for _, c := range clusters {
			if strings.HasSuffix(call.Principal, "/"+c.ID) {
				caller = c.ID
			}
		}
		if caller == "" {
			continue
		}
		for _, resource := range call.Resources {
			if maker, known := madeBy[resource]; known && maker != caller {
				errs = append(errs, fmt.Errorf("%s: %s on %s, which belongs to %s", caller, call.Action, resource, maker))
			} else if !known {
				madeBy[resource] = caller
			}
		}
	}
	return errors.Join(errs...)
}

// awaitPairedInBoth waits until each cluster's NodeClaims match the instances that its autoscaler launched.
func awaitPairedInBoth(ctx context.Context, w *World) error {
	for n, c := range w.Clusters {
		err := world.Until(ctx, func() error {
			launched := map[string]bool{}
			for _, call := range w.AWS.Calls() {
				if strings.HasSuffix(call.Principal, "/"+c.ID) && call.Action == "CreateFleet" {
					for _, id := range call.Resources {
						launched[id] = true
					}
				}
			}
			own := slices.DeleteFunc(w.Running(), func(i awsim.Instance) bool { return !launched[i.ID] })
			var claims karpv1.NodeClaimList
			if err := list(ctx, w.at(n), &claims); err != nil {
				return err
			}
			return unpaired(claims.Items, own)
		})
		if err != nil {
			return fmt.Errorf("cluster %s: %w", c.ID, err)
		}
	}
	return nil
}
