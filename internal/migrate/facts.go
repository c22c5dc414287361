package migrate

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/aws/rolecheck"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// The facts, in addition to those of the doctor.
const (
	Deployments doctor.Fact = "Deployments"
	Leases      doctor.Fact = "leader leases"
	Identity    doctor.Fact = "the UID of the namespace kube-system"
	Definitions doctor.Fact = "CustomResourceDefinitions"
	Objects     doctor.Fact = "objects of Karpenter's API"
	Webhooks    doctor.Fact = "webhook configurations"
	Policies    doctor.Fact = "admission policies"
	Role        doctor.Fact = "the controller's IAM role"
	Selected    doctor.Fact = "what the EC2NodeClasses select"
	Drift       doctor.Fact = "how instances differ from their EC2NodeClasses"
)

// Facts describes what the checks evaluate. They are shared, and only read.
type Facts struct {
	// Cluster are the facts that the doctor evaluates, too. Its Missed has why a fact could not be read, also those above.
	Cluster *doctor.Facts
	// ClusterUID is the UID of the namespace kube-system.
	ClusterUID string
	// Deployments are all of the cluster. Named is the one that runs Karpenter, as NAMESPACE/NAME; empty to find it.
	Deployments []appsv1.Deployment
	Named       string
	// ConfigMaps are the data of those that give Karpenter its environment, by NAMESPACE/NAME.
	ConfigMaps map[string]map[string]string
	// ServiceAccountKept is true if Karpenter's ServiceAccount is not of its release: it stays when that is uninstalled.
	ServiceAccountKept bool
	// Leases are the leases that Karpenter and Dovetail have by default, in all namespaces.
	Leases []coordinationv1.Lease
	// Definitions are the CustomResourceDefinitions of the groups of Karpenter's API, ObjectCounts how many objects those have that
	// only an old Karpenter used, by name.
	Definitions  []apiextensionsv1.CustomResourceDefinition
	ObjectCounts map[string]int
	// Objects are NodePools, EC2NodeClasses, NodeClaims, NodeOverlays and CapacityBuffers as the API server stores them.
	Objects []unstructured.Unstructured
	// Webhooks must approve writes of what Dovetail writes, by that: nodes, or an API group. Policies may reject or change them.
	Webhooks map[string][]apiserver.Webhook
	Policies map[string][]apiserver.Policy
	// Region and Account hold those of the role; empty where not known.
	Region, Account string
	// RoleGiven is true if a person has named the role.
	RoleGiven bool
	// RoleByPodIdentity is true if EKS Pod Identity gives the role to the ServiceAccount, which then needs no annotation.
	RoleByPodIdentity bool
	// RoleARN is the controller's role, Denied are the statements of our policy that it does not have.
	RoleARN string
	Denied  []rolecheck.Denied
	// Selections holds what the node classes select now, by name. Conditions without status True are problems.
	Selections map[string]Selection
	// Drift states why instances differ from their node class, as Dovetail would select for it, by NodeClaim; empty if they do not.
	Drift map[string]string
}

// Selection describes what a node class selects.
type Selection struct {
	// Class has the selected resources in its status.
	Class      *awsv1.EC2NodeClass
	Conditions []cloudprovider.Condition
}

// Broken is the first problem of a selection; empty if there is none.
func (s Selection) Broken() string {
	for _, c := range s.Conditions {
		if c.Status == metav1.ConditionFalse {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// missing returns why one of the needs is not met; empty if all are.
func (f *Facts) missing(needs []doctor.Fact) string {
	for _, need := range needs {
		if why, missed := f.Cluster.Missed[need]; missed {
			return string(need) + " could not be read: " + why
		}
	}
	return ""
}
