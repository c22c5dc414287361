package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var shop = Params{
	Cluster: "shop", Identity: "3f2c1a9e-7d44-4c0b-9a55-0d6e1f2b3c4d", Region: "eu-west-1", Account: "111122223333", Queues: []string{"shop"},
	NodeRoles: []string{"KarpenterNodeRole-shop"},
}

// The files are the policy as a security review would read it: a change of them is a change of what operators grant.
// UPDATE=1 rewrites them.
func TestPolicyAsWritten(t *testing.T) {
	byName := shop
	byName.Identity = ""
	for name, p := range map[string]Params{"identity.json": shop, "name.json": byName} {
		d, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("the policy is not testdata/%s; run with UPDATE=1 and read the difference", name)
		}
	}
}

func TestSizes(t *testing.T) {
	longest := shop
	longest.Cluster = strings.Repeat("x", 100)
	longest.NodeRoles, longest.Queues = []string{strings.Repeat("r", 64)}, []string{strings.Repeat("q", 80)}
	for _, tc := range []struct {
		name  string
		p     Params
		parts int
		fits  bool // an inline policy
	}{
		{"usual", shop, 2, true},
		{"the longest names", longest, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := New(tc.p)
			if err != nil {
				t.Fatal(err)
			}
			size, err := d.Size()
			if err != nil {
				t.Fatal(err)
			}
			if fits := size <= InlineLimit; fits != tc.fits {
				t.Errorf("%d characters; fits an inline policy: %v, want %v", size, fits, tc.fits)
			}
			parts, err := d.Split(ManagedLimit)
			if err != nil {
				t.Fatal(err)
			}
			if len(parts) != tc.parts {
				t.Errorf("%d characters in %d managed policies, want %d", size, len(parts), tc.parts)
			}
			var whole Document
			for _, part := range parts {
				if n, err := part.Size(); err != nil || n > ManagedLimit {
					t.Errorf("a part has %d characters (%v)", n, err)
				}
				whole = append(whole, part...)
			}
			if !slices.EqualFunc(whole, d, func(a, b Statement) bool { return a.Sid == b.Sid }) {
				t.Error("the parts are not the whole")
			}
		})
	}
	d, err := New(shop)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Split(500); err == nil || !strings.Contains(err.Error(), "AllowScopedEC2InstanceActionsWithTags has") {
		t.Errorf("a statement beyond the limit: %v", err)
	}
}

// What finishes, changes or tags a resource is bound to the identity: without exception, so that a statement that is added
// without it fails here.
func TestIdentityBindsAllThatChangesResources(t *testing.T) {
	d, err := New(shop)
	if err != nil {
		t.Fatal(err)
	}
	// Resources that are nobody's own, and what changes nothing.
	free := []string{"AllowScopedEC2InstanceAccessActions", "AllowPassingInstanceRole", "AllowInterruptionQueueActions"}
	for _, s := range d {
		reads := !slices.ContainsFunc(s.Actions(), func(a string) bool {
			_, verb, _ := strings.Cut(a, ":")
			return !strings.HasPrefix(verb, "Describe") && !strings.HasPrefix(verb, "Get") && !strings.HasPrefix(verb, "List")
		})
		if reads || slices.Contains(free, s.Sid) {
			continue
		}
		bound := false
		for _, key := range []string{"aws:ResourceTag/dovetail.sh/cluster-uid", "aws:RequestTag/dovetail.sh/cluster-uid"} {
			if slices.Equal(s.Conditions["StringEquals"][key], []string{shop.Identity}) {
				bound = true
			}
		}
		if !bound {
			t.Errorf("%s is not bound to the identity", s.Sid)
		}
	}
}

func TestWithoutRegionAndAccount(t *testing.T) {
	d, err := New(Params{Cluster: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"arn:aws:ec2:*:*:instance/*"`, `"arn:aws:iam::*:role/KarpenterNodeRole-shop"`, `"StringLike":{"aws:RequestedRegion":"*"}`,
		`"arn:aws:eks:*:*:cluster/shop"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(string(text), "sqs:") {
		t.Error("rights to a queue, though none was named")
	}
}

func TestNamesAndARNs(t *testing.T) {
	p := shop
	p.Region = "cn-north-1"
	p.NodeRoles = []string{"team/nodes", "arn:aws-cn:iam::111122223333:role/other"}
	p.Queues = []string{"arn:aws-cn:sqs:cn-north-1:111122223333:q"}
	p.Parameters = []string{"/images/*"}
	d, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`["arn:aws-cn:iam::111122223333:role/team/nodes","arn:aws-cn:iam::111122223333:role/other"]`,
		`"Resource":"arn:aws-cn:sqs:cn-north-1:111122223333:q"`, `"arn:aws-cn:ssm:cn-north-1:111122223333:parameter/images/*"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestWrongParameters(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Params)
		says string
	}{
		{"no cluster", func(p *Params) { p.Cluster = "" }, "name is required"},
		{"wildcard for a cluster", func(p *Params) { p.Cluster = "*" }, `cluster "*"`},
		{"policy variable for a cluster", func(p *Params) { p.Cluster = "${aws:username}" }, "cluster"},
		{"identity that is a name", func(p *Params) { p.Identity = "kube-system" }, `identity "kube-system": not the UID`},
		{"zone for a region", func(p *Params) { p.Region = "eu-west-1a" }, `region "eu-west-1a"`},
		{"account with dashes", func(p *Params) { p.Account = "1111-2222-3333" }, "twelve digits"},
		{"partition", func(p *Params) { p.Partition = "amazon" }, `partition "amazon"`},
		{"any role", func(p *Params) { p.NodeRoles = []string{"*"} }, `node role "*": neither a name nor an ARN of iam`},
		{"ARN of another service", func(p *Params) { p.Queues = []string{"arn:aws:sns:eu-west-1:111122223333:q"} }, "interruption queue"},
		{"URL of a queue", func(p *Params) { p.Queues = []string{"https://sqs.eu-west-1.amazonaws.com/1/q"} }, "interruption queue"},
		{"SSM parameter", func(p *Params) { p.Parameters = []string{"a b"} }, `SSM parameter "a b"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := shop
			tc.edit(&p)
			if _, err := New(p); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}
