package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/assess"
)

func body(t testing.TB, request WhatIfRequest) string {
	t.Helper()
	data, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func whatIfOf(t testing.TB, c *Console, request WhatIfRequest) WhatIf {
	t.Helper()
	return decoded[WhatIf](t, post(c, whatIfPath, body(t, request)))
}

// An edit of a node class drifts the nodes of all its NodePools, by the field, and the patch makes that edit alone.
func TestAnEditOfANodeClassDriftsTheNodesOfItsNodePools(t *testing.T) {
	c := newWorld(t).console()
	text := decoded[NodeClassReport](t, get(c, apiRoot+"/nodeclasses/default")).Manifest
	same := whatIfOf(t, c, WhatIfRequest{NodeClass: "default", Manifest: text})
	if same.Comparison == nil || len(same.Comparison.Drift) != 0 || same.Patch != "" ||
		same.Comparison.After.HourlyCost != same.Comparison.Before.HourlyCost {
		t.Fatalf("without an edit: %+v", same)
	}
	large := text + "  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 200Gi}}]\n  tags: {team: it's}\n"
	found := whatIfOf(t, c, WhatIfRequest{NodeClass: "default", Manifest: large})
	if found.Comparison == nil || len(found.Comparison.Drift) != 1 || found.Comparison.Drift[0].Nodes == 0 ||
		found.Comparison.Drift[0].Reason != "NodeClassDrift" || found.Comparison.Drift[0].Fields[0].Field != "spec.blockDeviceMappings" {
		t.Fatalf("another volume: %+v", found)
	}
	patch := `kubectl patch ec2nodeclasses.karpenter.k8s.aws default --type merge -p '{"spec":{"blockDeviceMappings":[{`
	if !strings.HasPrefix(found.Patch, patch) || !strings.Contains(found.Patch, `it'\''s`) || strings.Contains(found.Patch, "userData") {
		t.Errorf("the patch is %s", found.Patch)
	}
	other := whatIfOf(t, c, WhatIfRequest{
		NodeClass: "default", Manifest: strings.Replace(text, "discovery: shop", "discovery: other", 1),
	})
	if notes := strings.Join(other.Comparison.Notes, "\n"); !strings.Contains(notes, "spec.securityGroupSelectorTerms[0]") {
		t.Errorf("the notes of another selector are %s", notes)
	}
}

func TestAnEditOfANodeClassThatTheClusterWouldNotTakeHasFaults(t *testing.T) {
	c := newWorld(t).console()
	text := decoded[NodeClassReport](t, get(c, apiRoot+"/nodeclasses/default")).Manifest
	for _, tt := range []struct{ name, text, field string }{
		{"a field that does not exist", text + "  roles: node\n", "spec.roles"},
		{"another name", strings.Replace(text, "name: default", "name: other", 1), "metadata.name"},
		{"a NodePool", manifestOf(t, c, "general"), "kind"},
		{"no YAML", "spec: [", ""},
		{"a value that the API server rejects", text + "  instanceStorePolicy: RAID7\n", "spec.instanceStorePolicy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := whatIfOf(t, c, WhatIfRequest{NodeClass: "default", Manifest: tt.text})
			if len(got.Faults) == 0 || got.Faults[0].Field != tt.field || got.Comparison != nil {
				t.Errorf("the answer is %+v", got)
			}
		})
	}
	gone := strings.Replace(text, "name: default", "name: other", 1)
	if answer := post(c, whatIfPath, body(t, WhatIfRequest{NodeClass: "other", Manifest: gone})); answer.Code != http.StatusNotFound {
		t.Errorf("a node class that does not exist: %d %s", answer.Code, answer.Body)
	}
}

// More replicas need nodes, fewer free them, and the same number changes nothing.
func TestADeploymentIsScaled(t *testing.T) {
	c := newWorld(t).console()
	scaled := func(replicas int) *assess.Comparison {
		found := whatIfOf(t, c, WhatIfRequest{Deployment: "shop/web", Replicas: &replicas}).Comparison
		if found == nil {
			t.Fatalf("%d replicas: no comparison", replicas)
		}
		return found
	}
	if same := scaled(1); same.After.HourlyCost != same.Before.HourlyCost || same.After.Nodes != same.Before.Nodes {
		t.Errorf("one replica, as now: %+v", same)
	}
	more := scaled(60)
	if more.After.Launched <= more.Before.Launched || more.After.HourlyCost <= more.Before.HourlyCost {
		t.Errorf("60 replicas launch %d nodes, one %d", more.After.Launched, more.Before.Launched)
	}
	if none := scaled(0); none.After.HourlyCost >= none.Before.HourlyCost {
		t.Errorf("no replicas: $%.3f/h, one: $%.3f/h", none.After.HourlyCost, none.Before.HourlyCost)
	}
}

func TestWhatCannotBeComparedHasItsReason(t *testing.T) {
	c := newWorld(t).console()
	for _, tt := range []struct {
		name, body string
		status     int
		field, has string
	}{
		{"an unknown Deployment", `{"deployment":"shop/wob","replicas":3}`, 404, "deployment", `no Deployment "shop/wob"; did you mean shop/web?`},
		{"a name without a namespace", `{"deployment":"web","replicas":3}`, 400, "deployment", `"web" is not NAMESPACE/NAME`},
		{"fewer than no replicas", `{"deployment":"shop/web","replicas":-1}`, 400, "replicas", "-1 is not a number from 0 to 10000"},
		{"too many", `{"deployment":"shop/web","replicas":10001}`, 400, "replicas", "from 0 to 10000"},
		{"no number", `{"deployment":"shop/web"}`, 400, "replicas", "the number of replicas is missing"},
		{"part of one", `{"deployment":"shop/web","replicas":1.5}`, 400, "manifest", "not valid JSON"},
		{"an unknown gate", `{"gates":{"SpotToSpot":true}}`, 400, "gates", "did you mean SpotToSpotConsolidation?"},
		{"two edits", `{"deployment":"shop/web","replicas":1,"gates":{}}`, 400, "", "exactly one of"},
		{"no edit", `{}`, 400, "", "exactly one of"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := post(c, whatIfPath, tt.body)
			var problem Problem
			if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil {
				t.Fatal(err)
			}
			if answer.Code != tt.status || problem.Field != tt.field || !strings.Contains(problem.Message, tt.has) {
				t.Errorf("%d %+v, want %d, field %q and %q", answer.Code, problem, tt.status, tt.field, tt.has)
			}
		})
	}
}

func TestChoicesAreWhatTheClusterHas(t *testing.T) {
	w := newWorld(t)
	w.view.Search.SpotToSpot = true
	found := decoded[WhatIfChoices](t, get(w.console(), whatIfPath+"/choices"))
	if len(found.Deployments) != 2 || found.Deployments[1].Name != "web" || found.Deployments[1].Pods != 1 {
		t.Errorf("the Deployments are %+v", found.Deployments)
	}
	if len(found.Gates) != 5 || found.Gates[0].Name != "SpotToSpotConsolidation" || !found.Gates[0].On || found.Gates[1].On {
		t.Errorf("the gates are %+v", found.Gates)
	}
	gates := whatIfOf(t, w.console(), WhatIfRequest{Gates: map[string]bool{"SpotToSpotConsolidation": false}}).Comparison
	if gates == nil || gates.Next == nil {
		t.Errorf("a gate off: %+v", gates)
	}
}
