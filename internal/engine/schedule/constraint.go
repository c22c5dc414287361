package schedule

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// constraint is a view as explanations see it.
type constraint struct {
	topology.View
	of *topology.Registry
}

// Describe is the constraint as it concerns new nodes of the template.
func (c *constraint) Describe(on *nodepool.Template) rejection.Constraint {
	return c.of.Describe(&c.View, on.DaemonsOn(c.Daemons()))
}

// Spreads reports whether the constraint is topology spread.
func (c *constraint) Spreads() bool { return c.Type() == topology.Spread }

// Selector is the label selector of the pods that count.
func (c *constraint) Selector() string { return c.Group().Selector() }

// Domains are those that a node with these requirements could be in.
func (c *constraint) Domains(node requirement.Set) []string { return c.of.DomainsOf(c.Group(), node) }
