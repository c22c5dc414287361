package main

import (
	"strings"
	"testing"
)

// workloadShop is a Deployment shop/web of two pods of half a core each; rule is part of the pod's spec, in one line.
func workloadShop(rule string) string {
	return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2,
  selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {` + rule + `
    containers: [{name: c, image: web, resources: {requests: {cpu: 500m, memory: 512Mi}}}]}}}}`
}

// In the catalog, a node costs $0.20/h on demand in two zones, and $0.07/h as spot in one of them.
func TestPlanExplainsItsCost(t *testing.T) {
	const ofWeb = "{matchLabels: {app: web}}"
	for _, tt := range []struct{ name, rule, bound, rules string }{
		{"no rules", "", "Bound: $0.0700/h, which no plan can beat: this plan is optimal (proven)", "Rules: none costs anything"},
		{
			"pods that keep off each other's nodes",
			"affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"[{topologyKey: kubernetes.io/hostname, labelSelector: " + ofWeb + "}]}},",
			"Bound: $0.1400/h, which no plan can beat: this plan is optimal (proven)",
			"Rules: $0.0700/h for host rules of shop/web",
		},
		{
			"zone spread",
			"topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, " +
				"labelSelector: " + ofWeb + "}],",
			"Bound: $0.0700/h, which no plan can beat; this plan costs $0.2000/h more\n       The bound counts parts of nodes; unused: 6.8 cpu, 27Gi memory",
			"Gap:   $0.2000/h above the bound, $0.2000/h of it for rules that the bound leaves out\n" +
				"Rules: $0.2000/h for zone spread of shop/web",
		},
		{
			"on-demand among spot",
			"nodeSelector: {karpenter.sh/capacity-type: on-demand},",
			"Bound: $0.2000/h, which no plan can beat: this plan is optimal (proven)",
			"Rules: $0.1300/h for on-demand only of shop/web",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"plan", "-f", examplePool, "-f", "-", "--catalog", "../../examples/catalog/instance-types.json"}
			table, _, err := command(workloadShop(tt.rule), append(args, "--explain-cost")...)
			if err != nil || !strings.Contains(table, tt.bound) || !strings.Contains(table, tt.rules) {
				t.Errorf("%v, want %q and %q in:\n%s", err, tt.bound, tt.rules, table)
			}
			if plain, _, err := command(workloadShop(tt.rule), args...); err != nil || strings.Contains(plain, "Rules: ") {
				t.Errorf("%v, want no costs of rules without the flag:\n%s", err, plain)
			}
			document, _, err := command(workloadShop(tt.rule), append(args, "--explain-cost", "-o", "json")...)
			if err != nil || !strings.Contains(document, `"ruleCosts": {`) {
				t.Errorf("%v:\n%s", err, document)
			}
			if err := judge(t, document); err != nil {
				t.Errorf("the schema refuses: %v", err)
			}
		})
	}
}
