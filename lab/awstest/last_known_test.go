package awstest

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/lastknown"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
)

// A process that starts while EC2 describes nothing and prices cannot be read launches with what AWS has returned to an earlier one, for as
// long as that may be used. Without it, nothing is launched.
func TestRestartLaunchesWithWhatAnEarlierProcessWasAnswered(t *testing.T) {
	for _, tc := range []struct {
		name string
		// kept is whether there was an earlier process, and age how long ago.
		kept            bool
		age             time.Duration
		launches        bool
		onDemand, spots bool // whether its prices are used
	}{
		{"a restart", true, time.Minute, true, true, true},
		{"a restart after two days", true, 48 * time.Hour, true, true, false},
		{"a restart after eight days", true, inventory.KeptFor + 24*time.Hour, false, false, false},
		{"a first start", false, 0, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, api := newLaunchFixture(t, 1), fake.NewClientset()
			config := s.config("uid-1")
			keep := func() *lastknown.Store {
				return &lastknown.Store{
					Client: api.CoreV1().ConfigMaps("kube-system"), Region: "us-east-1", ClusterUID: "uid-1", Now: s.Clock.Now,
				}
			}
			if tc.kept {
				config.Kept = keep()
				if err := s.start(config).Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, a := range []lastknown.Answer{lastknown.InstanceTypes, lastknown.Prices} {
					found, err := api.CoreV1().ConfigMaps("kube-system").Get(t.Context(), a.Name(), metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if size := len(found.BinaryData["answer.json.gz"]); size > 300<<10 {
						t.Errorf("the %s take %d KiB", a, size>>10)
					} else {
						t.Logf("the %s take %d KiB", a, size>>10)
					}
				}
			}
			s.Clock.Advance(tc.age)
			config.Kept = keep()
			restarted := *s
			restarted.cloud = s.start(config)
			for _, fault := range []string{"ec2.Describe*=InternalError", "pricing.*=InternalError"} {
				if err := s.Sim.InjectSpec(fault); err != nil {
					t.Fatal(err)
				}
			}
			restarted.Recall(t.Context())
			if _, stands := restarted.RecalledTypes(); stands != tc.launches {
				t.Errorf("instance types stand in: %v", stands)
			}
			if _, stands := restarted.RecalledPrices(); stands != (tc.onDemand || tc.spots) {
				t.Errorf("prices stand in: %v", stands)
			}
			if got := restarted.launchBatch(sameRequirements(1)...)[0]; (got.err == nil) != tc.launches {
				t.Errorf("launch: %v", got.err)
			}
			s.Sim.ClearFaults()
			if err := restarted.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, types := restarted.RecalledTypes()
			if _, prices := restarted.RecalledPrices(); types || prices {
				t.Errorf("earlier answers stand in though AWS answers: types %v, prices %v", types, prices)
			}
		})
	}
}

// A class names what of it cannot be read, and stays as it was resolved before.
func TestClassNamesWhatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	class := nodeClass("default")
	before := w.start(w.config("uid-1")).ResolveNodeClass(t.Context(), class)
	class.Status = before.Status
	for _, c := range before.Conditions { // as the controller writes them
		class.Status.Conditions = append(class.Status.Conditions, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason})
	}
	for fault, want := range map[string][]string{
		"ec2.DescribeSubnets=InternalError":         {"subnets (InternalError)"},
		"ec2.DescribeSecurityGroups=Unavailable":    {"security groups (Unavailable)"},
		"ssm.*=InternalError,status=500":            {"images (InternalError)"},
		"iam.*=ServiceUnavailable":                  {"the instance profile (ServiceUnavailable)"},
		"ec2.DescribeSubnets=UnauthorizedOperation": nil, // a person has to act: the condition of the class is about that
	} {
		restarted := w.start(w.config("uid-1"))
		if err := w.Sim.InjectSpec(fault); err != nil {
			t.Fatal(err)
		}
		got := restarted.ResolveNodeClass(t.Context(), class)
		if !slices.Equal(got.Unread, want) {
			t.Errorf("%s: %q cannot be read, want %q", fault, got.Unread, want)
		}
		if len(got.Status.AMIs) == 0 || len(got.Status.Subnets) == 0 || len(got.Status.SecurityGroups) == 0 || got.Status.InstanceProfile == "" {
			t.Errorf("%s: the status is not what it was: %+v", fault, got.Status)
		}
		w.Sim.ClearFaults()
	}
	fresh := nodeClass("fresh")
	restarted := w.start(w.config("uid-1"))
	if err := w.Sim.InjectSpec("ec2.DescribeSubnets=InternalError"); err != nil {
		t.Fatal(err)
	}
	got := restarted.ResolveNodeClass(t.Context(), fresh)
	if len(got.Unread) > 0 || conditionOf(got, awsv1.ConditionSubnetsReady).Status == metav1.ConditionTrue {
		t.Errorf("a class that was never resolved uses what was found before: %q", got.Unread)
	}
}

// What is kept of prices has each price, and nothing that is none.
func TestKeptPricesAreWhole(t *testing.T) {
	s := newLaunchFixture(t, 1)
	earlier, at := pricing.New(pricing.Config{Region: "us-east-1", Now: s.Clock.Now}), s.Clock.Now()
	kept := pricing.Kept{OnDemandAt: at, SpotAt: at}
	text := `{"onDemand": {"linux": {"m5.large": 0.1, "c5.large": -1}}, "spot": {"linux": {"us-east-1a": {"m5.large": 0.03, "c5.large": 0}}}}`
	if err := json.Unmarshal([]byte(text), &kept); err != nil {
		t.Fatal(err)
	}
	if !earlier.Recall(kept) {
		t.Fatal("the prices do not stand in")
	}
	if price, known := earlier.OnDemand("m5.large"); !known || price != 0.1 {
		t.Errorf("m5.large costs %v, %v", price, known)
	}
	if price, known := earlier.Spot("m5.large", "us-east-1a"); !known || price != 0.03 {
		t.Errorf("spot m5.large costs %v, %v", price, known)
	}
	if price, known := earlier.OnDemand("c5.large"); known {
		t.Errorf("c5.large costs %v", price)
	}
	if price, known := earlier.Spot("c5.large", "us-east-1a"); known {
		t.Errorf("spot c5.large costs %v", price)
	}
}
