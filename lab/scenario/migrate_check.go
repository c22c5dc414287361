package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// readiness is the output of `dovetail migrate check -o json`.
type readiness struct {
	Results []struct{ Check, Status, Object, Field, Seen, Remedy string }
}

// checkMigration runs `dovetail migrate check`.
func checkMigration(ctx context.Context, w *World) (out readiness, exit int, err error) {
	text, exit, err := w.RunDovetail(ctx, "migrate", "check", "-o", "json")
	if err != nil {
		return out, exit, err
	}
	return out, exit, json.Unmarshal(text, &out)
}

// notOK are the results that are not ok, as "STATUS CHECK OBJECT".
func (r readiness) notOK() (out []string) {
	for _, result := range r.Results {
		if result.Status != "ok" {
			out = append(out, strings.TrimSpace(result.Status+" "+result.Check+" "+result.Object+" "+result.Field+": "+result.Seen))
		}
	}
	return out
}

// awaitReady waits until nothing keeps Dovetail from taking over. EC2 shows changes with a delay.
func awaitReady(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		report, exit, err := checkMigration(ctx, w)
		if err != nil {
			return err
		}
		if wrong := report.notOK(); len(wrong) > 0 || exit != 0 {
			return fmt.Errorf("exit code %d, %q", exit, wrong)
		}
		w.Note("%d checks are ok", len(report.Results))
		return nil
	})
}

// obstacle is something that keeps Dovetail from taking over, with what it is found by: the check, and the beginning of the object.
type obstacle struct {
	name, check, object string
	plant, remove       func(ctx context.Context, w *World) error
}

// step plants an obstacle, waits until migrate check names it and no other, removes it, and waits until nothing is wrong. Warnings may
// follow from an obstacle.
func (o obstacle) step() Step {
	return Step{
		Name: o.name + ": migrate check names it, and nothing after it is removed", Timeout: time.Minute,
		Run: func(ctx context.Context, w *World) error {
			if err := o.plant(ctx, w); err != nil {
				return err
			}
			var last error // what was found before the deadline stopped the command
			err := world.Until(ctx, func() error {
				report, exit, err := checkMigration(ctx, w)
				if err != nil {
					return errors.Join(err, last)
				}
				wrong := slices.DeleteFunc(report.notOK(), func(text string) bool { return !strings.HasPrefix(text, "obstacle ") })
				if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "obstacle "+o.check+" "+o.object) || exit != 1 {
					last = fmt.Errorf("exit code %d, %q, want only %s %s", exit, wrong, o.check, o.object)
					return last
				}
				w.Note("%s", wrong[0])
				return nil
			})
			if err := errors.Join(err, o.remove(ctx, w)); err != nil {
				return err
			}
			return awaitReady(ctx, w)
		},
	}
}

// shell is a step's work as a line for the operator's shell.
func shell(line string) func(ctx context.Context, w *World) error {
	return func(ctx context.Context, w *World) error {
		_, err := w.Shell(ctx, line)
		return err
	}
}

// applied and deleted are a step's work as a manifest.
func applied(manifest string) func(ctx context.Context, w *World) error {
	return func(ctx context.Context, w *World) error { return w.Apply(ctx, []byte(manifest)) }
}

func deleted(manifest string) func(ctx context.Context, w *World) error {
	return func(ctx context.Context, w *World) error { return w.Delete(ctx, []byte(manifest)) }
}

// migrateCheck runs `dovetail migrate check` in a cluster as Karpenter leaves it, and with each of several obstacles in it.
func migrateCheck() Scenario {
	const app = "sample"
	begin := []Step{
		startController(),
		installPool(manifests.Default, nil),
		{Name: "create 2 pods: they run", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "2"}); err != nil {
				return err
			}
			return errors.Join(awaitPodsRunning(ctx, w, app, 2), awaitPaired(ctx, w))
		}},
		{
			Name:    "stop the controller, and give objects and instances what Karpenter gives them: migrate check finds no obstacle",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := errors.Join(w.StopController(ctx), becomeKarpenter(ctx, w)); err != nil {
					return err
				}
				return awaitReady(ctx, w)
			},
		},
		{Name: "run the step of the plan that stops Karpenter, and its undo", Timeout: time.Minute, Run: stopAndUndo},
	}
	var planted []Step
	for _, o := range slices.Concat(plantedObjects(), plantedInAWS()) {
		planted = append(planted, o.step())
	}
	end := []Step{
		{Name: "start the controller: it adopts the instances, and no node is replaced", Timeout: time.Minute, Run: adoptAll},
		deleteAll(app, manifests.Default),
	}
	return Scenario{
		Name:    "migrate-check",
		Summary: "dovetail migrate check finds nothing in a sound cluster of Karpenter, and names each of twelve obstacles",
		Steps:   slices.Concat(begin, planted, end),
	}
}

// becomeKarpenter removes the tags of Dovetail from instances, gives hashes the version of Karpenter's, and creates Karpenter's
// Deployment. Its role comes by Pod Identity, and may also simulate policies: the operator has it.
func becomeKarpenter(ctx context.Context, w *World) error {
	role, found := w.AWS.IAM().Role(w.Role())
	if !found {
		return fmt.Errorf("there is no role %s", w.Role())
	}
	const operator = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*","Action":["iam:SimulatePrincipalPolicy",` +
		`"eks:ListPodIdentityAssociations","eks:DescribePodIdentityAssociation"]}]}`
	if err := w.AWS.IAM().PutRolePolicy(w.Role(), "operator", operator); err != nil {
		return err
	}
	_, err := w.EKS().CreatePodIdentityAssociation(ctx, &eks.CreatePodIdentityAssociationInput{
		ClusterName: &w.Name, Namespace: aws.String("karpenter"), ServiceAccount: aws.String("karpenter"), RoleArn: &role.ARN,
	})
	if err != nil {
		return err
	}
	var ids []string
	for _, i := range w.Running() {
		ids = append(ids, i.ID)
	}
	_, err = w.EC2().DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: ids, Tags: []ec2types.Tag{
		{Key: aws.String(awsv1.TagClusterUID)}, {Key: aws.String("dovetail.sh/nodeclaim-uid")},
	}})
	if err != nil {
		return err
	}
	for _, line := range []string{
		"kubectl annotate nodepools,nodeclaims --all --overwrite karpenter.sh/nodepool-hash-version=v3 karpenter.sh/nodepool-hash=1",
		"kubectl annotate ec2nodeclasses,nodeclaims --all --overwrite karpenter.k8s.aws/ec2nodeclass-hash-version=v6 " +
			"karpenter.k8s.aws/ec2nodeclass-hash=1",
	} {
		if _, err := w.Shell(ctx, line); err != nil {
			return err
		}
	}
	return apply(ctx, w, manifests.Karpenter, nil)
}

// stopAndUndo runs the commands of the plan that scale Karpenter.
func stopAndUndo(ctx context.Context, w *World) error {
	text, exit, err := w.RunDovetail(ctx, "migrate", "plan", "-o", "json")
	if err != nil || exit != 0 {
		return errors.Join(err, fmt.Errorf("exit code %d", exit))
	}
	var plan struct {
		Steps []struct {
			Name           string
			Commands, Undo []string
		}
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return err
	}
	for _, step := range plan.Steps {
		if step.Name != "stop Karpenter" {
			continue
		}
		for _, line := range step.Commands {
			if _, err := w.Shell(ctx, line); err != nil {
				return err
			}
		}
		out, err := w.Shell(ctx, "kubectl -n karpenter get pods -o name")
		if err != nil || out != "" {
			return errors.Join(err, fmt.Errorf("pods of Karpenter are left: %q", out))
		}
		for _, line := range step.Undo {
			if _, err := w.Shell(ctx, line); err != nil {
				return err
			}
		}
		w.Note("%s", strings.Join(append(step.Commands, step.Undo...), "; "))
		return nil
	}
	return errors.New("the plan has no step that stops Karpenter")
}

// adoptAll waits until each instance has the identity of the cluster again, and checks that the nodes are the same.
func adoptAll(ctx context.Context, w *World) error {
	before, err := w.Shell(ctx, "kubectl get nodes -o name")
	if err != nil {
		return err
	}
	if err := errors.Join(w.AWS.IAM().PutRolePolicy(w.Role(), "operator", nothingAllowed), w.StartController(ctx)); err != nil {
		return err
	}
	if _, err := w.Shell(ctx, "kubectl delete namespace karpenter"); err != nil {
		return err
	}
	err = world.Until(ctx, func() error {
		for _, i := range w.Running() {
			if i.Tags[awsv1.TagClusterUID] == "" {
				return fmt.Errorf("instance %s is not adopted", i.ID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := w.Shell(ctx, "kubectl get nodes -o name")
	if err != nil || after != before {
		return errors.Join(err, fmt.Errorf("the nodes were %q, and are %q", before, after))
	}
	return nil
}

const nothingAllowed = `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"iam:SimulatePrincipalPolicy","Resource":"*"}]}`

// plantedObjects are obstacles in the API server.
func plantedObjects() []obstacle {
	const (
		crdPools, crdClasses = "kubectl patch crd nodepools.karpenter.sh", "kubectl patch crd ec2nodeclasses.karpenter.k8s.aws"
		spec                 = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/hibernationOptions"
		hook                 = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guard}
webhooks:
  - name: guard.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {service: {namespace: guard, name: guard}}
    rules: [{apiGroups: [karpenter.sh], apiVersions: [v1], resources: [nodeclaims], operations: [CREATE]}]
`
		refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-nodeclaims}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [karpenter.sh], apiVersions: ["*"], resources: [nodeclaims], operations: [DELETE]}]
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-nodeclaims}
spec: {policyName: no-nodeclaims, validationActions: [Deny]}
`
		set = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: autoscaler, namespace: default}
spec:
  selector: {matchLabels: {app: autoscaler}}
  template:
    metadata: {labels: {app: autoscaler}}
    spec:
      nodeSelector: {no: node}
      containers: [{name: main, image: "registry.example.com:5000/mirror/karpenter/controller:1.8.0"}]
`
		metal = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: metal}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.example.com, kind: MetalNodeClass, name: rack}
      requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
`
	)
	gates := func(value string) func(context.Context, *World) error {
		return shell("kubectl -n karpenter set env deployment/karpenter FEATURE_GATES=" + value)
	}
	return []obstacle{
		{
			"store NodePools in an old version, too", "crds", "CustomResourceDefinition nodepools.karpenter.sh status.storedVersions",
			shell(crdPools + ` --type json -p '[{"op":"add","path":"/spec/versions/-","value":{"name":"v1beta1","served":false,"storage":false,` +
				`"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}]'; ` +
				crdPools + ` --subresource status --type merge -p '{"status":{"storedVersions":["v1beta1","v1"]}}'`),
			shell("kubectl get nodepools.karpenter.sh -o json | kubectl replace -f -; " +
				crdPools + ` --subresource status --type merge -p '{"status":{"storedVersions":["v1"]}}'; ` +
				crdPools + ` --type json -p '[{"op":"remove","path":"/spec/versions/1"}]'`),
		},
		{
			"use a field without support", "fields", "EC2NodeClass default spec.hibernationOptions",
			func(ctx context.Context, w *World) error {
				add := crdClasses + ` --type json -p '[{"op":"add","path":"` + spec + `","value":{"type":"boolean"}}]'`
				if err := shell(add)(ctx, w); err != nil {
					return err
				}
				return world.Until(ctx, func() error { // the API server needs a moment to know the field
					set := `kubectl patch ec2nodeclass default --type merge -p '{"spec":{"hibernationOptions":true}}' && ` +
						`kubectl get ec2nodeclass default -o jsonpath={.spec.hibernationOptions}`
					out, err := w.Shell(ctx, set)
					if err != nil || !strings.HasSuffix(out, "true") {
						return errors.Join(err, fmt.Errorf("the API server has dropped the field: %s", out))
					}
					return nil
				})
			},
			shell(`kubectl patch ec2nodeclass default --type json -p '[{"op":"remove","path":"/spec/hibernationOptions"}]'; ` +
				crdClasses + ` --type json -p '[{"op":"remove","path":"` + spec + `"}]'`),
		},
		{
			"run a second Karpenter", "controllers", "Deployment default/karpenter spec.replicas",
			shell("kubectl -n default create deployment karpenter --image=public.ecr.aws/karpenter/controller:1.8.0 --replicas=0; " +
				`kubectl -n default patch deployment karpenter -p '{"spec":{"replicas":1,"template":{"spec":{"nodeSelector":{"no":"node"}}}}}'`),
			shell("kubectl -n default delete deployment karpenter"),
		},
		{
			"turn on a gate without support", "feature-gates", "Deployment karpenter/karpenter", gates("Hibernation=true"),
			gates("NodeRepair=false"),
		},
		{
			"create a webhook without a backend", "webhooks", "validatingwebhookconfiguration guard", applied(hook), deleted(hook),
		},
		{
			"create a policy that rejects deletions of NodeClaims", "webhooks", "validatingadmissionpolicy no-nodeclaims", applied(refusal),
			deleted(refusal),
		},
		{
			"run a second Karpenter without a Deployment", "controllers", "StatefulSet default/autoscaler image", applied(set), deleted(set),
		},
		{
			"create a NodePool of a custom provider", "provider", "NodePool metal", applied(metal), deleted(metal),
		},
	}
}

// plantedInAWS are obstacles that show only with the account.
func plantedInAWS() []obstacle {
	var policy, foreign string
	alias := func(name string) func(context.Context, *World) error {
		return shell(`kubectl patch ec2nodeclass default --type merge -p '{"spec":{"amiSelectorTerms":[{"alias":"` + name + `"}]}}'`)
	}
	return []obstacle{
		{
			"select an image alias that is gone", "selectors", "EC2NodeClass default spec.amiSelectorTerms[0].alias", alias("al2@latest"),
			alias("al2023@latest"),
		},
		{
			"select other images: nodes would drift", "drift", "EC2NodeClass default status.amis", alias("bottlerocket@latest"),
			alias("al2023@latest"),
		},
		{
			"take the right to adopt from the role", "permissions", "IAM role",
			func(_ context.Context, w *World) error {
				role, _ := w.AWS.IAM().Role(w.Role())
				policy = role.Inline["controller"]
				return w.AWS.IAM().PutRolePolicy(w.Role(), "controller", without(policy, "AllowAdoptionOfInstances"))
			},
			func(_ context.Context, w *World) error {
				return w.AWS.IAM().PutRolePolicy(w.Role(), "controller", policy)
			},
		},
		{
			"launch an instance of another cluster with this name", "foreign-instances", "cluster",
			func(ctx context.Context, w *World) error {
				object, err := launchUnknownInstance(ctx, w)
				if err != nil {
					return err
				}
				foreign = strings.TrimPrefix(object, "instance ")
				return world.Until(ctx, func() error { // EC2 shows an instance some time after its launch
					_, err := w.EC2().CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{foreign}, Tags: []ec2types.Tag{
						{Key: aws.String(awsv1.TagClusterUID), Value: aws.String("9b1d7c42-0c1e-4f7a-8a8b-6f5e4d3c2b1a")},
					}})
					return err
				})
			},
			func(ctx context.Context, w *World) error {
				_, err := w.EC2().TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{foreign}})
				return err
			},
		},
	}
}

// without is a policy without one statement.
func without(document, sid string) string {
	var policy struct {
		Version   string
		Statement []map[string]any
	}
	if json.Unmarshal([]byte(document), &policy) != nil {
		return document
	}
	policy.Statement = slices.DeleteFunc(policy.Statement, func(s map[string]any) bool { return s["Sid"] == sid })
	text, err := json.Marshal(policy)
	if err != nil {
		return document
	}
	return string(text)
}
