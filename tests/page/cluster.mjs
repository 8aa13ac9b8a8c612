// A cluster of 5 000 nodes in 100 racks with 400 Jobs, the same every time: input of `make page`.
const items = [];
for (let i = 0; i < 5000; i++) {
  const rack = Math.floor(i / 50), block = Math.floor(rack / 10), region = Math.floor(block / 5), name = "n" + String(i).padStart(4, "0");
  items.push({
    apiVersion: "v1", kind: "Node",
    metadata: { name, labels: { region: "re" + region, block: "b" + block, rack: "r" + rack, "kubernetes.io/hostname": name } },
    spec: { unschedulable: i % 97 === 0 },
    status: { allocatable: { cpu: "96", memory: "900Gi", "nvidia.com/gpu": "8", pods: "110" } },
  });
}
items.push({ apiVersion: "kai.scheduler/v1alpha1", kind: "Topology", metadata: { name: "net" }, spec: { levels: ["region", "block", "rack", "kubernetes.io/hostname"].map(nodeLabel => ({ nodeLabel })) } });
for (let job = 0; job < 400; job++) {
  // Some need more nodes than a rack has: they wait.
  const pods = job % 100 === 0 ? 60 : [2, 4, 8, 16, 32][job * 7 % 5];
  const annotations = { "kai.scheduler/batch-min-member": String(pods) };
  if (job % 2 === 0) Object.assign(annotations, { "kai.scheduler/topology": "net", "kai.scheduler/topology-required-placement": "rack" });
  items.push({
    apiVersion: "batch/v1", kind: "Job", metadata: { name: "job-" + job, annotations },
    spec: { completionMode: "Indexed", parallelism: pods, completions: pods, template: { spec: { schedulerName: "kai-scheduler", containers: [{ name: "c", resources: { limits: { "nvidia.com/gpu": 8 } } }] } } },
  });
}
console.log(JSON.stringify({ apiVersion: "v1", kind: "List", items }));
