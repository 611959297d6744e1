# The program from outside: exit codes, and what it says where.
#   cmake -DLINCHECK=program -DSCRATCH=directory -P program.cmake
file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})

# expect(code pattern arguments...): the exit code, and what stdout and stderr together match.
function(expect code_wanted pattern)
  execute_process(COMMAND ${LINCHECK} ${ARGN} WORKING_DIRECTORY ${SCRATCH}
    INPUT_FILE ${SCRATCH}/good.json
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 60)
  if(NOT code STREQUAL code_wanted OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "${ARGN}: exit ${code}, wanted ${code_wanted} and '${pattern}':\n${output}")
  endif()
endfunction()

set(acquire "{\"process\":0,\"type\":\"invoke\",\"f\":\"acquire\"}
{\"process\":0,\"type\":\"ok\",\"f\":\"acquire\"}\n")
string(REPLACE "\"process\":0" "\"process\":1" acquire_too "${acquire}")
file(WRITE ${SCRATCH}/good.json "${acquire}")
file(WRITE ${SCRATCH}/bad.json "${acquire}${acquire_too}")
file(WRITE ${SCRATCH}/torn.json "${acquire}{\"process\":")
file(WRITE ${SCRATCH}/five.edn "{:process 0 :type :invoke :f :read}
{:process 0 :type :ok :f :read :value 5}\n")
file(WRITE ${SCRATCH}/empty "")

expect(0 "^linearizable\n1 operations on 1 keys" --model mutex good.json)
expect(0 "^linearizable" --model mutex -)
expect(1 "^not linearizable\n.*These 2 of 2 operations.*    held by process 0" --model mutex
  bad.json)
expect(0 "^linearizable" --model semaphore --permits 2 bad.json)
expect(1 "^not linearizable" --model semaphore bad.json)
expect(0 "^linearizable" --model register --initial 5 five.edn)
expect(1 "^not linearizable" --model register five.edn)
expect(2 "torn.json:3: the file ends inside a value" --model mutex torn.json)
expect(2 "good.json:1: a keyword has no name" --model mutex --format edn good.json)
expect(2 "empty: no operation is in it" --model mutex empty)
expect(2 "absent.json: No such file" --model mutex absent.json)
expect(2 "good.json:1: the model register has no operation acquire" --model register good.json)
expect(2 "no model 'mutes'" --model mutes good.json)
expect(2 "usage:" good.json)
expect(2 "usage:" --model mutex)
expect(2 "usage:" --model mutex good.json bad.json)
expect(2 "--permits wants a number" --model semaphore --permits 0 good.json)
expect(2 "--permits wants a number" --model semaphore --permits 2x good.json)
expect(2 "--initial is no value" --model register --initial "(1" five.edn)
expect(0 "^usage:" --help)

# Of many appends at once every order has to be tried: too much for 1 MiB.
set(begun "")
set(ended "")
foreach(i RANGE 1 20)
  string(APPEND begun "{:process ${i} :key 0 :type :invoke :f :append :value \"${i} \"}\n")
  string(APPEND ended "{:process ${i} :key 0 :type :ok :f :append}\n")
endforeach()
file(WRITE ${SCRATCH}/many.edn "${begun}${ended}{:process 0 :key 0 :type :invoke :f :read}
{:process 0 :key 0 :type :ok :f :read :value \"99\"}\n")
expect(3 "^unknown: 1 MiB of memory do not suffice" --model kv --memory 1 many.edn)
expect(3 "^unknown: 1 MiB" --model mutex --memory 1 --format jepsen /dev/zero)

# Of many unanswered operations nearly every choice comes to the same.
set(open "")
foreach(i RANGE 1 40)
  string(APPEND open "{:process ${i} :type :invoke :f :cas :value [${i} nil]}\n")
  string(APPEND open "{:process 5${i} :type :invoke :f :write :value ${i}}\n")
endforeach()
file(WRITE ${SCRATCH}/open.edn "${open}{:process 0 :type :invoke :f :read}
{:process 0 :type :ok :f :read :value 99}\n")
expect(1 "^not linearizable" --model register --memory 64 open.edn)
