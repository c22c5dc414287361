package eks

import (
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// association gives the role to the pods of a service account.
type association struct {
	id, namespace, account, roleARN string
	created                         time.Time
}

// associationID is a number in the letters of EKS's IDs, such as a-0123456789abcdefg.
func (e *EKS) associationID() string { return "a-" + e.newUUID()[:8] }

type createAssociationInput struct {
	ClientRequestToken string `json:"clientRequestToken"`
	Namespace          string `json:"namespace"`
	ServiceAccount     string `json:"serviceAccount"`
	RoleARN            string `json:"roleArn"`
}

type jsonPodIdentity struct {
	ClusterName    string  `json:"clusterName"`
	Namespace      string  `json:"namespace"`
	ServiceAccount string  `json:"serviceAccount"`
	RoleARN        string  `json:"roleArn,omitempty"`
	AssociationARN string  `json:"associationArn"`
	AssociationID  string  `json:"associationId"`
	CreatedAt      float64 `json:"createdAt,omitempty"`
	ModifiedAt     float64 `json:"modifiedAt,omitempty"`
}

type associationOutput struct {
	Association jsonPodIdentity `json:"association"`
}

func (e *EKS) associationARN(cluster, id string) string {
	return e.arn("podidentityassociation/" + cluster + "/" + id)
}

func (e *EKS) associationOutput(cluster string, a association) *associationOutput {
	return &associationOutput{jsonPodIdentity{
		ClusterName: cluster, Namespace: a.namespace, ServiceAccount: a.account, RoleARN: a.roleARN, AssociationID: a.id,
		AssociationARN: e.associationARN(cluster, a.id), CreatedAt: epoch(a.created), ModifiedAt: epoch(a.created),
	}}
}

func (e *EKS) createPodIdentityAssociation(r *protocol.Request, in *createAssociationInput) (*associationOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.find(r.Path["name"])
	if err != nil {
		return nil, err
	}
	if in.Namespace == "" || in.ServiceAccount == "" || in.RoleARN == "" {
		return nil, invalid("namespace, serviceAccount and roleArn are required")
	}
	for _, a := range c.associations {
		if a.namespace == in.Namespace && a.account == in.ServiceAccount {
			return nil, inUse("Association already exists: %s", a.id)
		}
	}
	a := association{e.associationID(), in.Namespace, in.ServiceAccount, in.RoleARN, e.cfg.Now()}
	c.associations[a.id] = a
	r.Touch(e.associationARN(c.Name, a.id))
	return e.associationOutput(c.Name, a), nil
}

type listAssociationsOutput struct {
	Associations []jsonPodIdentity `json:"associations"`
	NextToken    string            `json:"nextToken,omitempty"`
}

// listPodIdentityAssociations leaves out the roles, as EKS does.
func (e *EKS) listPodIdentityAssociations(r *protocol.Request, _ *nothing) (*listAssociationsOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.find(r.Path["name"])
	if err != nil {
		return nil, err
	}
	query := r.HTTP.URL.Query()
	var ids []string
	for id, a := range c.associations {
		if (query.Get("namespace") == "" || query.Get("namespace") == a.namespace) &&
			(query.Get("serviceAccount") == "" || query.Get("serviceAccount") == a.account) {
			ids = append(ids, id)
		}
	}
	ids, next, err := page(r, ids)
	if err != nil {
		return nil, err
	}
	out := &listAssociationsOutput{Associations: []jsonPodIdentity{}, NextToken: next}
	for _, id := range ids {
		a := c.associations[id]
		out.Associations = append(out.Associations, jsonPodIdentity{
			ClusterName: c.Name, Namespace: a.namespace, ServiceAccount: a.account, AssociationID: id, AssociationARN: e.associationARN(c.Name, id),
		})
	}
	return out, nil
}

func (e *EKS) describePodIdentityAssociation(r *protocol.Request, _ *nothing) (*associationOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.find(r.Path["name"])
	if err != nil {
		return nil, err
	}
	a, ok := c.associations[r.Path["associationId"]]
	if !ok {
		return nil, notFound("Association not found: %s", r.Path["associationId"])
	}
	return e.associationOutput(c.Name, a), nil
}
