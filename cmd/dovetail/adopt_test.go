package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// account is EC2 as the adopt command sees it: who may be adopted is decided as it is there.
type account struct {
	identity  identity.Identity
	matches   matches
	instances map[string]cloudprovider.Instance
}

func (a *account) Get(_ context.Context, providerID string) (cloudprovider.Instance, error) {
	id, err := instance.ParseProviderID(providerID)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	i, ok := a.instances[id]
	if !ok {
		return i, fmt.Errorf("get instance %s: %w", id, cloudprovider.ErrNotFound)
	}
	i.Owner = a.identity.Owner(i.Tags, a.matches.both[i.ProviderID])
	return i, nil
}

func (a *account) Adopt(_ context.Context, i cloudprovider.Instance) error {
	may, err := a.identity.Adopt(i, a.matches.both[i.ProviderID])
	return a.tag(may, err)
}

func (a *account) Release(_ context.Context, i cloudprovider.Instance) error {
	may, err := a.identity.Release(i)
	return a.tag(may, err)
}

func (a *account) tag(may identity.Adoption, err error) error {
	if err != nil {
		return err
	}
	id, tags, err := may.Tags(identity.Instance)
	for key, value := range tags {
		a.instances[id].Tags[key] = value
	}
	return err
}

func TestAdopt(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	tags := func(more ...string) map[string]string {
		out := map[string]string{"eks:eks-cluster-name": "shop", "karpenter.sh/nodepool": "general"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for _, tt := range []struct {
		name string
		tags map[string]string
		// claim and node are whether this API server has them for the instance.
		claim, node bool
		yes         bool
		says        string
		refused     bool
		ours        bool
	}{
		{
			name: "a leftover, shown", tags: tags(),
			says: "would be tagged as this cluster's; it has no NodeClaim here, and is terminated within about two minutes",
		},
		{name: "a leftover", tags: tags(), yes: true, says: "tagged as this cluster's; it has no NodeClaim here", ours: true},
		{
			name: "one of a NodeClaim without a node", tags: tags(), claim: true, yes: true,
			says: "it stays as the instance of NodeClaim general-1", ours: true,
		},
		{
			name: "one that the controller would adopt", tags: tags(), claim: true, node: true, yes: true,
			says: "it stays as the instance of NodeClaim general-1", ours: true,
		},
		{
			name: "another cluster's, shown", tags: tags("dovetail.sh/cluster-uid", "uid-green"),
			says: "belongs to the cluster with UID uid-green", refused: true,
		},
		{
			name: "another cluster's", tags: tags("dovetail.sh/cluster-uid", "uid-green"), yes: true,
			says: "belongs to the cluster with UID uid-green", refused: true,
		},
		{
			name: "of another name", tags: tags("eks:eks-cluster-name", "bank"), yes: true, says: "its tags do not name cluster shop",
			refused: true,
		},
		{name: "ours", tags: tags("dovetail.sh/cluster-uid", "uid-blue"), yes: true, says: "already belongs to this cluster", ours: true},
		{name: "gone", yes: true, says: "EC2 has no such instance", refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			blue := identity.Identity{ClusterUID: "uid-blue", ClusterName: "shop", Region: "us-east-1"}
			m := matches{identity: blue, claims: map[string]string{}, both: map[string]identity.Match{}}
			a := &account{identity: blue, instances: map[string]cloudprovider.Instance{}}
			const providerID = "aws:///us-east-1a/i-1"
			if tt.tags != nil {
				a.instances["i-1"] = cloudprovider.Instance{
					ID:         "i-1",
					ProviderID: providerID,
					State:      cloudprovider.Running,
					Type:       "m7i.large",
					LaunchedAt: now.Add(-time.Hour),
					Tags:       tt.tags,
				}
			}
			if tt.claim {
				m.claims[providerID] = "general-1"
			}
			if tt.node {
				m.both[providerID] = identity.Match{ClaimName: "general-1", ClaimUID: "uid-of-general-1"}
			}
			a.matches = m
			var out strings.Builder
			err := adoptRun{
				instances: a,
				matches:   m,
				now:       func() time.Time { return now },
				yes:       tt.yes,
				out:       &out,
			}.run(
				t.Context(),
				[]string{"i-1", "i-1"},
			)
			if (err != nil) != tt.refused || !strings.Contains(out.String(), tt.says) {
				t.Errorf("error %v, said:\n%s", err, out.String())
			}
			if ours := tt.tags["dovetail.sh/cluster-uid"] == "uid-blue"; ours != tt.ours {
				t.Errorf("the instance has become ours: %v, want %v", ours, tt.ours)
			}
			if hint := strings.Contains(out.String(), "Repeat with --yes"); hint != (!tt.yes && !tt.refused) {
				t.Errorf("said:\n%s", out.String())
			}
		})
	}
}

func TestAdoptTakesInstanceIDs(t *testing.T) {
	if err := checkInstanceIDs([]string{"i-0123456789abcdef0", "node-1"}); err == nil || !strings.Contains(err.Error(), "node-1") {
		t.Errorf("got %v", err)
	}
	if err := checkInstanceIDs([]string{"i-0123456789abcdef0"}); err != nil {
		t.Error(err)
	}
}
