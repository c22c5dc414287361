package console

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// NodeClassReport is an EC2NodeClass with what its selectors found.
type NodeClassReport struct {
	Name string `json:"name"`
	// NodePools are those that refer to it, sorted.
	NodePools []string `json:"nodePools"`
	// Faults are the conditions that are not True.
	Faults []NodeClassFault `json:"faults"`
	// Resolved is false while its selectors have found nothing that is in its status: in manifests, and before its first reconciliation.
	Resolved        bool       `json:"resolved"`
	Images          []Image    `json:"images"`
	Subnets         []Resource `json:"subnets"`
	SecurityGroups  []Resource `json:"securityGroups"`
	Reservations    []Resource `json:"reservations"`
	InstanceProfile string     `json:"instanceProfile"`
	// Manifest is what a person writes of it, as YAML.
	Manifest string `json:"manifest"`
}

// NodeClassFault is a condition that is not True.
type NodeClassFault struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

// Image is an AMI that the selectors found, the newest first. For states which instance types it suits.
type Image struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Deprecated bool   `json:"deprecated"`
	For        string `json:"for"`
}

// Resource is a resource of EC2 by its ID. Note is its zone or its name.
type Resource struct {
	ID   string `json:"id"`
	Note string `json:"note"`
}

// nodeClass is a node class of the cluster as it is. It takes no plan.
func (c *Console) nodeClass(r *http.Request) (any, error) {
	view, err := c.views.current(r.Context())
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	class, err := classOf(view, name)
	if err != nil {
		return nil, err
	}
	out, err := reportOf(class)
	if err != nil {
		return nil, err
	}
	for _, p := range view.NodePools {
		if p.Spec.Template.Spec.NodeClassRef.Name == name {
			out.NodePools = append(out.NodePools, p.Name)
		}
	}
	slices.Sort(out.NodePools)
	return out, nil
}

func reportOf(class *awsv1.EC2NodeClass) (*NodeClassReport, error) {
	out := &NodeClassReport{
		Name: class.Name, NodePools: []string{}, Faults: []NodeClassFault{}, Images: []Image{}, Subnets: []Resource{},
		SecurityGroups: []Resource{}, Reservations: []Resource{}, InstanceProfile: class.Status.InstanceProfile,
	}
	for _, f := range class.Status.Conditions {
		if f.Status != metav1.ConditionTrue {
			out.Faults = append(out.Faults, NodeClassFault{Type: f.Type, Status: string(f.Status), Message: f.Message})
		}
	}
	for _, a := range class.Status.AMIs {
		suits := make([]string, len(a.Requirements))
		for i, q := range a.Requirements {
			suits[i] = strings.TrimSpace(q.Key + " " + q.Operator + " " + strings.Join(q.Values, ", "))
		}
		out.Images = append(out.Images, Image{ID: a.ID, Name: a.Name, Deprecated: a.Deprecated, For: strings.Join(suits, "; ")})
	}
	for _, s := range class.Status.Subnets {
		out.Subnets = append(out.Subnets, Resource{ID: s.ID, Note: s.Zone})
	}
	for _, g := range class.Status.SecurityGroups {
		out.SecurityGroups = append(out.SecurityGroups, Resource{ID: g.ID, Note: g.Name})
	}
	for _, q := range class.Status.CapacityReservations {
		out.Reservations = append(out.Reservations, Resource{ID: q.ID, Note: q.InstanceType + " in " + q.AvailabilityZone})
	}
	out.Resolved = len(out.Images)+len(out.Subnets)+len(out.SecurityGroups) > 0
	text, err := yaml.Marshal(writtenOf(class))
	out.Manifest = string(text)
	return out, err
}

func classOf(v *inspect.View, name string) (*awsv1.EC2NodeClass, error) {
	if class := v.NodeClasses[name]; class != nil {
		return class, nil
	}
	names := slices.Sorted(maps.Keys(v.NodeClasses))
	all := make([]*awsv1.EC2NodeClass, len(names))
	for i, n := range names {
		all[i] = v.NodeClasses[n]
	}
	return nil, inspect.NotFound("EC2NodeClass", name, all)
}

// writtenClass is what a person writes of a node class.
type writtenClass struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        authored               `json:"metadata"`
	Spec            awsv1.EC2NodeClassSpec `json:"spec"`
}

func writtenOf(class *awsv1.EC2NodeClass) writtenClass {
	return writtenClass{
		metav1.TypeMeta{APIVersion: awsv1.GroupVersion.String(), Kind: "EC2NodeClass"},
		authored{class.Name, class.Labels, manifest.Authored(class.Annotations)},
		class.Spec,
	}
}
