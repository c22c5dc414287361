package schedulertest_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/lab/schedulertest"
)

// worlds is how many worlds of each kind a test run generates. DOVETAIL_WORLDS=first,count generates others. With DOVETAIL_FINDINGS=first,
// only the first world that differs is shown, as it is; with DOVETAIL_FINDINGS=all, all are, as they are.
const worlds = 158

func (k *kind) worldRange(t *testing.T) (first, count uint64) {
	t.Helper()
	first, count = 0, cmp.Or(k.worlds, worlds)
	if v := os.Getenv("DOVETAIL_WORLDS"); v != "" {
		if _, err := fmt.Sscanf(v, "%d,%d", &first, &count); err != nil {
			t.Fatalf("DOVETAIL_WORLDS=%s: %v", v, err)
		}
	}
	return first, count
}

func seeded(seed uint64) func() byte {
	r := rand.New(rand.NewPCG(seed, 3))
	return func() byte { return byte(r.Uint32()) }
}

// disagreement is what kube-scheduler would not do of a plan of the world; empty if nothing.
func disagreement(t *testing.T, s *snapshot.Snapshot, plan schedule.Plan, seed uint64) string {
	t.Helper()
	scheduler, err := schedulertest.ForWorld(s)
	if err != nil {
		t.Fatal(err)
	}
	defer scheduler.Stop()
	groups, err := scheduler.Groups()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.PodGroups) == 0 {
		groups = nil
	}
	rules := propertytest.SchedulerOfGroups{Filter: scheduler.OfWorld, Groups: groups, Devices: scheduler.Devices}
	return rules.Disagreement(s, plan, seeded(seed))
}

// kind is a kind of generated clusters.
type kind struct {
	name  string
	world func(next func() byte) *snapshot.Snapshot
	// has is what is in the worlds besides what is in those of all kinds.
	has []propertytest.Happening
	// seeds is the seed of the first world.
	seeds uint64
	// worlds is how many a test run generates; 0 for as many as of other kinds.
	worlds uint64
	// mended are later worlds with plans that kube-scheduler once did not follow, or would not with a fault that others do not show.
	mended []uint64
	// groups is true if the worlds have PodGroups, which the scheduler reads behind a feature gate.
	groups bool
}

// TestKubeSchedulerFollowsPlans carries plans out under kube-scheduler's own filters: in some order it accepts each pod on its node, and
// after that no pod that was rejected on an existing node or on one more node that can be launched.
func TestKubeSchedulerFollowsPlans(t *testing.T) {
	for _, k := range []kind{
		{name: "topology", world: propertytest.SchedulerWorld, seeds: 3_000_000, mended: []uint64{
			147,          // shows a namespaceSelector that is not followed
			518,          // shows a nodeTaintsPolicy that is not followed
			21438, 22905, // a place was kept for a DaemonSet's pod that did not come; pods that may not count held others back
			886, 2034, 5106, // two DaemonSets want one host port; domains that do not exist held back the first pod
			12691, // room was kept for two DaemonSets of which one runs
			1032,  // one of two DaemonSets that want one host port comes, and both count
			13897, // the order in which pods fit was not found: pods follow one that terminates, and must come last
			31479, // no order of binding led to the division over zones of pods that also spread over architectures
			15484, // a running pod keeps one of two DaemonSets that want one host port off the node
		}},
		{name: "full hosts", has: fullHostsHappenings(), world: propertytest.FullHostsWorld, seeds: 5_000_000, mended: []uint64{
			20506, 20598, 20804, 21402, // pods that may not count, DaemonSets' among them, held others back in the only domain
			1050, 1543, 2184, // a running pod keeps a DaemonSet's pod off a new node, which pods counted on
			587, 1279, 1327, 1511, // nodes bring other DaemonSets' pods than domains were counted with
			4268, 4623, // types with fewer such pods; a node kept out of the value that its pool gives it
			21725,             // a domain was to make room by a pod that has to wait for another
			2406, 3608, 22565, // the next plan's nodes had the names of this plan's
			4322,        // the checker wanted pods where another pod's anti-affinity keeps them out
			3327,        // of two DaemonSets that want one host port, either may come first
			4290, 12292, // pods had to follow others before and after these were spread with
			12447,      // the first pod of a set, while another of the set comes to an existing node
			5093, 9106, // a pod followed one that terminates, and kept away from another
			7732, 9768, // two DaemonSets want one host port
			3760,         // nodes of the exact cover bring DaemonSets' pods to a domain that was not chosen
			22119, 25130, // a running pod keeps a DaemonSet's pod off new nodes, which a spread counted there
			8384,  // a pod with a spread fits beside one new node, and a second for a pod that follows it brings too many DaemonSets' pods
			24916, // a running pod keeps one of two DaemonSets that want one host port off new nodes, and a pod kept away from it
		}},
		{name: "storage", has: storageHappenings(), world: propertytest.StorageWorld, seeds: 7_000_000, mended: []uint64{
			186, // shows an attach limit that is not followed
			20863, 22162,
			4965,                         // the first pod of a set, while another node may bring a DaemonSet's pod of it
			3688, 7589, 7608, 8270, 9774, // a pod that is nominated counts where one that is bound does not
			2094,       // a domain was to make room by a pod that has to wait for another
			4511, 4978, // two DaemonSets want one host port, and do not run on the same nodes
			12062, // the checker wanted a pod on a node without the driver that it needs
			4843,  // the checker wanted pods where another pod's anti-affinity keeps them out
			1414,  // only types without a DaemonSet take the pod, once a domain is out
		}},
		{name: "fields of pods", has: podFieldsHappenings(), world: propertytest.PodFieldsWorld, seeds: 11_000_000, mended: []uint64{
			117,              // shows a host port on all addresses that is taken for one on a single address
			4123, 8982, 9164, // the next plan's nodes had the names of this plan's
			1243, // the first pods of a set, and a node that brings a DaemonSet's pod of it
		}},
		{name: "profiles", has: profilesHappenings(), world: propertytest.ProfilesWorld, seeds: 13_000_000, mended: []uint64{
			25229, // a running pod keeps a DaemonSet's pod off new nodes, which a spread counted there
		}},
		{name: "earlier names of labels", has: earlierNamesHappenings(), world: propertytest.AliasWorld, seeds: 15_000_000, mended: []uint64{
			20, 103, 298,
			21746, // pods kept away from a DaemonSet in domains in which it does not run
			26002, // the first pod of a set waited for one on a node that is in no domain
			22470, // the checker bound pods before one that terminates was gone, or after, which others waited for
			2064,  // the checker counted two DaemonSets' pods that want one host port
		}},
		{name: "static volumes", has: staticVolumesHappenings(), world: propertytest.StaticVolumesWorld, seeds: 17_000_000, mended: []uint64{
			77, 130, 151, // labels of volumes that claims may still be bound to
			22553, // the checker had all pods bound either before or after those that terminate are gone
			1073,  // a pod on a node that does not count made room in its zone, which was not stated
		}},
		{name: "storage capacity", has: capacityHappenings(), world: propertytest.StorageCapacityWorld, seeds: 19_000_000, mended: []uint64{
			24431, // a running pod keeps a DaemonSet's pod off a new node, where a spread counted it
			22267, // the checker had all pods bound either before or after those that terminate are gone
		}},
		{name: "nodes in flight", has: inFlightHappenings(), world: propertytest.InFlightWorld, seeds: 21_000_000, mended: []uint64{
			3547,  // a new node made a zone beside which nominated pods were too many
			26022, // the checker had all nodes in flight up before any pod is bound
			31052, // pods that are not spread came to existing nodes, and were too many beside one of their set on a node in flight
			3901,  // nominated pods rest on one that the plan had for an existing node
		}},
		{name: "deleting nodes", has: deletingHappenings(), world: propertytest.DeletingWorld, seeds: 23_000_000, mended: []uint64{
			340,      // nobody of a set was placed, since a node for one of it brings a DaemonSet's pod of the set
			555, 826, // DaemonSets' pods on nodes that leave
			2192, 2216, 2826, 5138, // pods that spread over hosts wait until a node that is being deleted is gone
			20877, // domains began without DaemonSets' pods, since nodes that do not count bring none
			25333, // a running pod keeps DaemonSets' pods off new nodes, which a spread over hosts counted
		}},
		{name: "reserved capacity", has: reservedHappenings(), world: propertytest.ReservedWorld, seeds: 25_000_000, mended: []uint64{
			21160, // nodes outside reservations counted as if they might be in one only
		}},
		{name: "two spreads", has: twoSpreadsHappenings(), world: propertytest.TwoSpreadsWorld, seeds: 29_000_000},
		// One takes three times as long as one of another kind: pods with devices are planned one by one.
		{name: "devices", has: devicesHappenings(), world: schedulertest.DevicesWorld, seeds: 27_000_000, worlds: 140, mended: []uint64{
			40427, // the checker of plans wanted devices for a claim that gets them with another pod
			144,   // pods on a node with devices were not counted in the domain that it comes up in
		}},
		{name: "groups", has: groupsHappenings(), world: propertytest.GroupsWorld, seeds: 9_000_000, groups: true, mended: []uint64{
			600, 927, 2273, // a running pod keeps a DaemonSet's pod off new nodes
			4643,  // a node that may come up in a zone that a spread does not know was counted in another
			1918,  // a pod had to follow one that was too many beside it
			25128, // a pod followed one that terminates, and another kept away from it
			33571, // the zone of a group was chosen by the last of its pods' alternatives
			6089,  // the checker had pods on existing nodes, which a spread does not count, wait for a new domain
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, k.groups)
			k.run(t)
		})
	}
}

// findFirst fails the test at the first of the worlds that differs.
func (k *kind) findFirst(t *testing.T, seeds []uint64) {
	for _, seed := range seeds {
		s := k.world(seeded(k.seeds + seed))
		if why := disagreement(t, s, schedule.Solve(s, schedule.Budget{}), seed); why != "" {
			t.Fatalf("world %d: %s", seed, why)
		}
	}
}

func (k *kind) run(t *testing.T) {
	first, count := k.worldRange(t)
	placed, rejected, failed := 0, 0, 0
	seen := propertytest.NewTally(append(propertytest.SchedulerHappenings(), k.has...)...)
	var seeds []uint64
	for seed := first; seed < first+count; seed++ {
		seeds = append(seeds, seed)
	}
	asTheyAre := os.Getenv("DOVETAIL_FINDINGS") == "all"
	if os.Getenv("DOVETAIL_FINDINGS") == "first" {
		k.findFirst(t, append(seeds, k.mended...))
		return
	}
	for _, seed := range append(seeds, k.mended...) {
		s := k.world(seeded(k.seeds + seed))
		plan := schedule.Solve(s, schedule.Budget{})
		placed, rejected = placed+len(s.Pods)-len(plan.Rejected), rejected+len(plan.Rejected)
		if seed >= first && seed < first+count { // the others were not chosen by chance
			seen.Add(s, &plan)
		}
		if err := validate.Plan(s, plan); err != nil && asTheyAre {
			t.Errorf("world %d: the checker finds: %v", seed, err)
		} else if err != nil {
			small := propertytest.Shrink(s, func(w *snapshot.Snapshot) bool {
				return len(w.Pools) > 0 && validate.Plan(w, schedule.Solve(w, schedule.Budget{})) != nil
			})
			t.Errorf("world %d: the checker finds: %v\nshrunk:\n%s%s", seed, err,
				propertytest.Show(small)+schedulertest.DeviceObjects(small), propertytest.Describe(schedule.Solve(small, schedule.Budget{})))
		}
		why := disagreement(t, s, plan, seed)
		if why == "" {
			continue
		}
		direction, _, _ := strings.Cut(why, ":")
		if failed++; failed > 3 || asTheyAre {
			t.Errorf("world %d: %s", seed, why)
			continue
		}
		small := propertytest.Shrink(s, func(w *snapshot.Snapshot) bool {
			return len(w.Pools) > 0 && strings.HasPrefix(disagreement(t, w, schedule.Solve(w, schedule.Budget{}), seed), direction+":")
		})
		smallPlan := schedule.Solve(small, schedule.Budget{})
		t.Errorf("world %d: %s\nshrunk: %s\n%s%s", seed, why, disagreement(t, small, smallPlan, seed),
			propertytest.Show(small)+schedulertest.DeviceObjects(small), propertytest.Describe(smallPlan))
	}
	for _, rare := range seen.Rare() {
		t.Errorf("too little happened: %s", rare)
	}
	t.Logf("%d pods placed, %d rejected, %d of %d worlds differ", placed, rejected, failed, count)
}
