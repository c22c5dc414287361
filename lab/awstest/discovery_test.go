package awstest

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	simec2 "github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// subnets adds a /24 in zone a for each set of tags, and returns their IDs in that order. The VPC's upper half is free.
func (w *world) subnets(tags ...map[string]string) []string {
	w.t.Helper()
	vpc := awsimtest.OK(ec2.NewFromConfig(w.Config).DescribeVpcs(w.t.Context(), &ec2.DescribeVpcsInput{}))(w.t).Vpcs[0]
	cidr := netip.MustParsePrefix(*vpc.CidrBlock).Addr().As4()
	var ids []string
	for i, t := range tags {
		cidr[2] = byte(240 + i)
		id, err := w.Sim.EC2().AddSubnet(
			simec2.Subnet{VPCID: *vpc.VpcId, Zone: "us-east-1a", CIDR: netip.PrefixFrom(netip.AddrFrom4(cidr), 24), Tags: t},
		)
		if err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func tags(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func subnetIDs(class *awsv1.EC2NodeClass) []string {
	var ids []string
	for _, s := range class.Status.Subnets {
		ids = append(ids, s.ID)
	}
	return ids
}

func TestSelectorTerms(t *testing.T) {
	w := newWorld(t)
	ids := w.subnets(tags("net", "a"), tags("net", "a", "tier", "db"), tags("tier", "db"), tags("net", "b"))
	c := w.start(w.config("uid-1"))
	type terms = []awsv1.SubnetSelectorTerm
	for _, tc := range []struct {
		name  string
		terms terms
		want  []string
	}{
		{"terms are alternatives", terms{{Tags: tags("net", "a")}, {Tags: tags("tier", "db")}}, ids[:3]},
		{"the tags of one term must all be there", terms{{Tags: tags("net", "a", "tier", "db")}}, ids[1:2]},
		{"any value", terms{{Tags: tags("net", "*")}}, []string{ids[0], ids[1], ids[3]}},
		{"matched by several terms, listed once", terms{{Tags: tags("net", "a")}, {Tags: tags("net", "*", "tier", "*")}, {ID: ids[1]}}, ids[:2]},
		{"of those with equally many free addresses the lower ID first", terms{{ID: ids[3]}, {ID: ids[2]}, {ID: ids[1]}, {ID: ids[0]}}, ids},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := nodeClass("default")
			class.Spec.SubnetSelectorTerms = tc.terms
			r := w.start(w.config("uid-1")).ResolveNodeClass(t.Context(), class)
			class.Status = r.Status
			if got, want := subnetIDs(class), slices.Sorted(slices.Values(tc.want)); !slices.Equal(got, want) || r.Err != nil {
				t.Errorf("%v, want %v, %v", got, want, r.Err)
			}
		})
	}
	t.Run("and those with more before them", func(t *testing.T) {
		class := nodeClass("default")
		class.Spec.SubnetSelectorTerms = append(terms{{ID: ids[0]}, {ID: ids[3]}}, class.Spec.SubnetSelectorTerms...)
		resolve(t, c, class)
		got := subnetIDs(class)
		if n := len(got); n < 5 || !slices.Equal(got[n-2:], sorted(ids[0], ids[3])) {
			t.Errorf("%v", got)
		}
	})
}

// inSubnet launches an instance and returns its subnet.
func inSubnet(t *testing.T, w *world, c *cloud, class *awsv1.EC2NodeClass, name string) string {
	t.Helper()
	if _, err := c.Launch(t.Context(), claim(name, onDemand, in(corev1.LabelInstanceTypeStable, "m5.large")), class); err != nil {
		t.Fatal(err)
	}
	all := w.Sim.Instances()
	return all[len(all)-1].SubnetID
}

func TestInFlightAddresses(t *testing.T) {
	world := func(t *testing.T) (*world, *cloud, *awsv1.EC2NodeClass, []string) {
		w := newWorld(t)
		ids := w.subnets(tags("net", "a"), tags("net", "a"))
		c := w.start(w.config("uid-1"))
		class := nodeClass("default")
		class.Spec.SubnetSelectorTerms = []awsv1.SubnetSelectorTerm{{Tags: tags("net", "a")}}
		resolve(t, c, class)
		return w, c, class, sorted(ids...)
	}
	t.Run("the next launch counts the addresses that one before it will use", func(t *testing.T) {
		w, c, class, ids := world(t)
		for n, want := range []string{ids[0], ids[1], ids[0]} {
			if got := inSubnet(t, w, c, class, string(rune('a'+n))); got != want {
				t.Errorf("launch %d is in %s, want %s", n, got, want)
			}
		}
		t.Run("until the next DescribeSubnets", func(t *testing.T) {
			w.Clock.Advance(time.Minute)
			resolve(t, c, class) // two instances in the first, one in the second
			if got := inSubnet(t, w, c, class, "d"); got != ids[1] {
				t.Errorf("in %s", got)
			}
		})
	})
	t.Run("a launch that fails gives them back", func(t *testing.T) {
		w, c, class, ids := world(t)
		w.Sim.Inject(
			awsim.Fault{Service: "ec2", Action: "CreateFleet", Error: protocol.Errorf("UnauthorizedOperation", "no").WithStatus(403)},
		)
		if _, err := c.Launch(t.Context(), claim("fails", onDemand, in(corev1.LabelInstanceTypeStable, "m5.large")), class); err == nil {
			t.Fatal("launched")
		}
		if got := inSubnet(t, w, c, class, "a"); got != ids[0] {
			t.Errorf("in %s, want %s", got, ids[0])
		}
	})
}

func TestReservationsAreFollowed(t *testing.T) {
	w := newWorld(t)
	end := w.Clock.Now().Add(39 * time.Minute)
	block := w.reserve(1, func(r *awsim.CapacityReservation) { r.Block, r.End = true, end })
	plain := w.reserve(1, func(r *awsim.CapacityReservation) { r.End = end })
	c := w.start(w.config("uid-1"))
	class := reserving()
	states := func() map[string]string {
		resolve(t, c, class)
		out := map[string]string{}
		for _, r := range class.Status.CapacityReservations {
			out[r.ID] = r.State
		}
		return out
	}
	if got := states(); len(got) != 2 || got[block] != "expiring" || got[plain] != "active" {
		t.Errorf("states %v, want %s expiring and %s active", got, block, plain)
	}
	t.Run("nothing is launched into a block that ends soon", func(t *testing.T) {
		if got := room(t, c, class); got[block] != 0 || got[plain] != 1 {
			t.Errorf("room %v", got)
		}
	})
	t.Run("EC2 does not respond: the known subnets stay, and the error is returned", func(t *testing.T) {
		w.Clock.Advance(time.Minute)
		w.Sim.Inject(
			awsim.Fault{
				Service: "ec2",
				Action:  "DescribeCapacityReservations",
				Error:   protocol.Errorf("InternalError", "bad minute").WithStatus(500),
			},
		)
		r := c.ResolveNodeClass(t.Context(), class)
		if r.Err == nil || len(r.Status.CapacityReservations) != 2 ||
			conditionOf(r, awsv1.ConditionCapacityReservationsReady).Status != "unchanged" {
			t.Errorf("%v, %v", r.Err, r.Status.CapacityReservations)
		}
	})
	t.Run("a reservation past its end is left out, whatever state EC2 reports", func(t *testing.T) {
		w.Clock.Advance(37*time.Minute + 30*time.Second)
		if r := c.ResolveNodeClass(t.Context(), class); r.Next > 30*time.Second {
			t.Errorf("looks again in %v, the end is in 30s", r.Next)
		}
		w.Clock.Advance(30 * time.Second) // within the minute for which an answer is believed
		calls := w.called("DescribeCapacityReservations")
		if got := states(); len(got) != 0 || w.called("DescribeCapacityReservations") != calls {
			t.Errorf("states %v", got)
		}
	})
}
