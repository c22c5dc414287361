package network

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// spell writes queries as "name=value,value name=value", one string per query.
func spell(queries []Query) []string {
	var out []string
	for _, q := range queries {
		s := ""
		for i, f := range q {
			if i > 0 {
				s += " "
			}
			s += aws.ToString(f.Name) + "="
			for j, v := range f.Values {
				if j > 0 {
					s += ","
				}
				s += v
			}
		}
		out = append(out, s)
	}
	return out
}

func TestSubnetQueries(t *testing.T) {
	for _, tc := range []struct {
		name  string
		terms []awsv1.SubnetSelectorTerm
		want  []string
	}{
		{
			"two tag terms are alternatives",
			[]awsv1.SubnetSelectorTerm{{Tags: map[string]string{"a": "1"}}, {Tags: map[string]string{"b": "2"}}},
			[]string{"tag:a=1", "tag:b=2"},
		},
		{
			"two tags of one term must both hold",
			[]awsv1.SubnetSelectorTerm{{Tags: map[string]string{"b": "2", "a": "1"}}},
			[]string{"tag:a=1 tag:b=2"},
		},
		{"any value", []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"a": "*"}}}, []string{"tag-key=a"}},
		{
			"IDs share one query",
			[]awsv1.SubnetSelectorTerm{{ID: "subnet-1"}, {Tags: map[string]string{"a": "1"}}, {ID: "subnet-2"}},
			[]string{"subnet-id=subnet-1,subnet-2", "tag:a=1"},
		},
		{"no terms", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, spell(SubnetQueries(tc.terms))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSecurityGroupQueries(t *testing.T) {
	got := spell(SecurityGroupQueries([]awsv1.SecurityGroupSelectorTerm{
		{Name: "x"}, {Tags: map[string]string{"a": "1"}}, {ID: "sg-1"}, {Name: "y"}, {ID: "sg-2", Name: "the ID wins"},
	}))
	if diff := cmp.Diff([]string{"group-id=sg-1,sg-2", "group-name=x,y", "tag:a=1"}, got); diff != "" {
		t.Error(diff)
	}
}

// world is an account of addresses under a clock that the test moves.
type world struct {
	*Addresses
	time time.Time
}

func newWorld(subnets ...Subnet) *world {
	w := &world{time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.Addresses = NewAddresses(time.Minute, func() time.Time { return w.time })
	w.Observe(subnets)
	return w
}

var (
	a1 = Subnet{ID: "subnet-a1", Zone: "a", FreeAddresses: 100}
	a2 = Subnet{ID: "subnet-a2", Zone: "a", FreeAddresses: 90}
	b1 = Subnet{ID: "subnet-b1", Zone: "b", FreeAddresses: 10}
	// inOrder is the order of a node class's status: most free addresses first.
	inOrder = []Subnet{a1, a2, b1}
)

func (w *world) choose(need map[string]int) *Choice { return w.Choose(inOrder, need) }

func TestMostFreeAddressesWin(t *testing.T) {
	w := newWorld(inOrder...)
	got := w.choose(map[string]int{"a": 5, "b": 5, "c": 5}).Subnets
	if diff := cmp.Diff(map[string]string{"a": "subnet-a1", "b": "subnet-b1"}, got); diff != "" {
		t.Error(diff)
	}
	if got := w.choose(map[string]int{"b": 5}).Subnets; len(got) != 1 {
		t.Errorf("zones that nothing is needed in were chosen too: %v", got)
	}
}

func TestLaunchesInFlightCount(t *testing.T) {
	w := newWorld(inOrder...)
	need := map[string]int{"a": 20}
	w.choose(need)
	if got := w.choose(need).Subnets["a"]; got != "subnet-a2" {
		t.Errorf("with 20 addresses of subnet-a1 promised, %s was chosen", got)
	}
}

func TestSettle(t *testing.T) {
	need := map[string]int{"a": 20}
	t.Run("a failed launch returns its addresses", func(t *testing.T) {
		w := newWorld(inOrder...)
		w.choose(need).Settle("")
		if got := w.choose(need).Subnets["a"]; got != "subnet-a1" {
			t.Errorf("chose %s", got)
		}
	})
	t.Run("settling twice returns them once", func(t *testing.T) {
		w := newWorld(inOrder...)
		w.choose(need) // leaves 80
		c := w.Choose([]Subnet{a1}, need)
		c.Settle("")
		c.Settle("")
		if got := w.choose(need).Subnets["a"]; got != "subnet-a2" {
			t.Errorf("chose %s", got)
		}
	})
	t.Run("a launch in another zone returns them", func(t *testing.T) {
		w := newWorld(inOrder...)
		w.choose(map[string]int{"a": 20, "b": 1}).Settle("subnet-b1")
		if got := w.choose(need).Subnets["a"]; got != "subnet-a1" {
			t.Errorf("chose %s", got)
		}
	})
	t.Run("the subnet used keeps its promise", func(t *testing.T) {
		w := newWorld(inOrder...)
		w.choose(need).Settle("subnet-a1")
		if got := w.choose(need).Subnets["a"]; got != "subnet-a2" {
			t.Errorf("chose %s", got)
		}
	})
	t.Run("counted afresh meanwhile", func(t *testing.T) {
		w := newWorld(inOrder...)
		c := w.choose(need)
		w.Observe([]Subnet{{ID: "subnet-a1", Zone: "a", FreeAddresses: 85}, a2})
		c.Settle("") // would make it 105
		if got := w.choose(need).Subnets["a"]; got != "subnet-a2" {
			t.Errorf("chose %s", got)
		}
	})
}

func TestExhaustedSubnetIsAvoided(t *testing.T) {
	w := newWorld(inOrder...)
	w.Exhausted("subnet-a1")
	if got := w.choose(map[string]int{"a": 1}).Subnets["a"]; got != "subnet-a2" {
		t.Errorf("chose %s", got)
	}
}

func TestOldCountsAreNotBelieved(t *testing.T) {
	w := newWorld(a1)
	w.time = w.time.Add(4 * time.Minute)
	w.Observe([]Subnet{a2})
	w.time = w.time.Add(2 * time.Minute)
	if got := w.choose(map[string]int{"a": 1}).Subnets["a"]; got != "subnet-a2" {
		t.Errorf("chose %s, whose count is six minutes old", got)
	}
}

// pages answers with one page of subnets after the other.
type pages struct {
	API
	subnets [][]string
}

func (p *pages) DescribeSubnets(
	_ context.Context,
	in *ec2.DescribeSubnetsInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeSubnetsOutput, error) {
	n := len(aws.ToString(in.NextToken))
	out := &ec2.DescribeSubnetsOutput{}
	for _, id := range p.subnets[n] {
		out.Subnets = append(out.Subnets, ec2types.Subnet{SubnetId: aws.String(id)})
	}
	if n+1 < len(p.subnets) {
		out.NextToken = aws.String(strings.Repeat("x", n+1))
	}
	return out, nil
}

// groupCalls counts how often security groups are read.
type groupCalls struct {
	API
	n int
}

func (c *groupCalls) DescribeSecurityGroups(
	context.Context,
	*ec2.DescribeSecurityGroupsInput,
	...func(*ec2.Options),
) (*ec2.DescribeSecurityGroupsOutput, error) {
	c.n++
	return &ec2.DescribeSecurityGroupsOutput{SecurityGroups: []ec2types.SecurityGroup{{GroupId: aws.String("sg-1")}}}, nil
}

func TestSecurityGroupsAreCachedForTheirInterval(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	now := func() time.Time { return at }
	api := &groupCalls{}
	f := NewFinder(api, Intervals{Subnets: time.Minute, SecurityGroups: 5 * time.Minute}, NewAddresses(time.Minute, now), now)
	for _, tc := range []struct {
		after time.Duration
		calls int
	}{{0, 1}, {4 * time.Minute, 1}, {6 * time.Minute, 2}} {
		at = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC).Add(tc.after)
		found, err := f.SecurityGroups(t.Context(), "key", []awsv1.SecurityGroupSelectorTerm{{ID: "sg-1"}})
		if err != nil || len(found) != 1 || api.n != tc.calls {
			t.Errorf("after %v: %v, %v, %d calls, want %d", tc.after, found, err, api.n, tc.calls)
		}
	}
}

func TestEmptyPages(t *testing.T) {
	t.Run("a page without results is not the end", func(t *testing.T) {
		now := func() time.Time { return time.Time{} }
		f := NewFinder(&pages{subnets: [][]string{nil, {"subnet-1"}, nil, {"subnet-2"}}}, Intervals{time.Minute, time.Minute}, NewAddresses(time.Minute, now), now)
		got, err := f.Subnets(t.Context(), "key", []awsv1.SubnetSelectorTerm{{Tags: map[string]string{"a": "1"}}})
		if err != nil || len(got) != 2 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
